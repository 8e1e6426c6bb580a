/* Browsers start no worker from a file: there the search runs in a frame of the page instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      address = new URL(address, location.href).href;
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      const begin = () => {
        document.body.appendChild(frame);
        const scope = frame.contentWindow;
        scope.importScripts = (...addresses) =>
          addresses.reduce(
            (before, one) =>
              before.then(
                () =>
                  new Promise((done, failed) => {
                    const script = scope.document.createElement("script");
                    Object.assign(script, { src: new URL(one, address).href, onload: done, onerror: failed });
                    scope.document.head.appendChild(script);
                  }),
              ),
            Promise.resolve(),
          );
        scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        scope.importScripts(address).then(() => {
          this.deliver = (data) => scope.dispatchEvent(new MessageEvent("message", { data }));
          this.waiting.splice(0).forEach(this.deliver);
        });
      };
      if (document.body) begin();
      else addEventListener("DOMContentLoaded", begin);
    }
    postMessage(data) {
      if (this.deliver) this.deliver(data);
      else this.waiting.push(data);
    }
    terminate() {}
  };
}
