"""From records to what people read: tables, figures, one page."""
