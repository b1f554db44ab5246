/* Browsers start no worker for a page that was opened from a disk, and the theme would fetch a
   substitute from elsewhere. This one runs the search in a hidden frame, without a network. */
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.document.open();
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.inside.document.write(`<body><script src="${url}"></script></body>`);
    this.ready = new Promise((begun) => this.inside.addEventListener("load", begun));
    this.inside.document.close();
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}
window.IFrameWorker = IFrameWorker; // its name tells the search script where it runs
if (location.protocol === "file:") window.Worker = IFrameWorker;
