// The container that JupyterLab loads: plain JavaScript, no build step.
//
// JupyterLab calls `init` with the modules that it shares and then `get` with the name from
// package.json. What we use of JupyterLab comes out of that shared scope, so there is one copy of
// each class; our own files are ordinary modules beside this one.
(() => {
  const here = new URL('.', document.currentScript.src);
  let scope = {};

  /** A module that JupyterLab shares, or `null` where this application has no such thing. */
  async function shared(name) {
    const versions = Object.values(scope[name] ?? {});
    const offer = versions.find(version => version.loaded) ?? versions[0];
    if (!offer) {
      return null;
    }
    const factory = await offer.get();
    return factory();
  }

  async function extension() {
    const [apputils, statusbar, widgets, { makePlugin }] = await Promise.all([
      shared('@jupyterlab/apputils'),
      shared('@jupyterlab/statusbar'),
      shared('@lumino/widgets'),
      import(new URL('plugin.js', here).href)
    ]);
    return { __esModule: true, default: [makePlugin({ apputils, statusbar, widgets })] };
  }

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.carrel = {
    init: sharedScope => {
      scope = sharedScope;
    },
    get: async module => {
      if (module !== './extension') {
        throw new Error(`carrel offers ./extension, not ${module}`);
      }
      const made = await extension();
      return () => made;
    }
  };
})();
