# A machine image with everything in it, so that a spot machine trains a minute after it starts
# instead of installing torch first: cluster/README.md, "A baked image". In the repository's root:
#   packer init cluster/image.pkr.hcl
#   packer build -only=amazon-ebs.calsweep -var base_ami=ami-… cluster/image.pkr.hcl
#   packer build -only=googlecompute.calsweep -var project=edit-project cluster/image.pkr.hcl
# It is baked by the script that the launcher files run: where pyproject.toml, constraints.txt and the
# extras are those of the image, that script then finds nothing left to install.

packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = "~> 1.3"
    }
    googlecompute = {
      source  = "github.com/hashicorp/googlecompute"
      version = "~> 1.1"
    }
  }
}

variable "region" {
  type    = string
  default = "us-west-2"
}

variable "base_ami" {
  type        = string
  description = "Ubuntu 24.04 with NVIDIA's driver; cluster/README.md says how to find it."
  default     = ""
}

variable "project" {
  type    = string
  default = ""
}

variable "zone" {
  type    = string
  default = "us-central1-a"
}

locals {
  stamp = formatdate("YYYYMMDD-hhmm", timestamp())
  files = [
    "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "calibration", "sweeps", "cluster",
  ]
}

source "amazon-ebs" "calsweep" {
  ami_name      = "calsweep-${local.stamp}"
  region        = var.region
  source_ami    = var.base_ami
  instance_type = "m7i.xlarge"
  ssh_username  = "ubuntu"
  imds_support  = "v2.0"
  launch_block_device_mappings {
    device_name           = "/dev/sda1"
    volume_size           = 100
    volume_type           = "gp3"
    encrypted             = true
    delete_on_termination = true
  }
}

source "googlecompute" "calsweep" {
  image_name          = "calsweep-${local.stamp}"
  image_family        = "calsweep"
  project_id          = var.project
  zone                = var.zone
  machine_type        = "n2-standard-4"
  source_image_family = "ubuntu-accelerator-2404-amd64-with-nvidia-580"
  source_image_project_id = ["ubuntu-os-accelerator-images"]
  ssh_username        = "ubuntu"
  disk_size           = 100
}

build {
  sources = ["source.amazon-ebs.calsweep", "source.googlecompute.calsweep"]

  # What the launchers and the Dockerfile leave out, such as cluster/mlflow/.env: an image may be shared.
  provisioner "shell-local" {
    inline = [
      "if find calibration sweeps cluster -name '*.env' -o -name '*.pem' -o -name '*.db' | grep .; then",
      "  echo 'move these files elsewhere: they would become part of the image' >&2",
      "  exit 1",
      "fi",
    ]
  }

  provisioner "shell" {
    inline = ["mkdir -p ~/calsweep"]
  }

  provisioner "file" {
    sources     = local.files
    destination = "/home/ubuntu/calsweep/"
  }

  # Neither the token nor the settings stay: every cluster has its own.
  provisioner "shell" {
    inline = [
      "mkdir -p ~/.ray && (umask 077; echo baking > ~/.ray/auth_token)",
      "if [ \"$PACKER_BUILDER_TYPE\" = amazon-ebs ]; then export CALSWEEP_EXTRAS=s3 CALSWEEP_PIP=boto3; else export CALSWEEP_PIP='gcsfs google-api-python-client'; fi",
      "CALSWEEP_STORE=/nowhere bash ~/calsweep/cluster/setup.sh",
      "~/calsweep-venv/bin/python -c 'import ray, torch, sweeps'",
      "rm -f ~/.ray/auth_token ~/.calsweep.env",
    ]
  }
}
