// Browsers refuse workers in pages that are opened as files. There, the script of the search runs in
// a hidden frame instead, which receives and posts messages as a worker does.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = frame.contentDocument.createElement("script");
          script.src = address;
          script.onload = resolve;
          script.onerror = reject;
          frame.contentDocument.body.append(script);
        });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...addresses) => {
        for (const address of addresses) await load(address);
      };
      this.inside = inside;
      this.loaded = load(url);
    }

    postMessage(data) {
      const event = () => new this.inside.MessageEvent("message", { data });
      this.loaded.then(() => this.inside.dispatchEvent(event()));
    }
  };
}
