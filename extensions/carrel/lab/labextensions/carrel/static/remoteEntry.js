// The container that JupyterLab loads: plain JavaScript, no build step.
//
// JupyterLab calls `init` with the modules that it shares and then `get` with the name from
// package.json. What we use of JupyterLab comes out of that shared scope, so there is one copy of
// each class; our own files are ordinary modules beside this one.
(() => {
  const MODULES = ['plugin.js', 'workplugin.js', 'outputs.js'];
  const RETRY_WAITS_MS = [0, 1000, 3000];
  const here = new URL(optionOfPage() ?? '.', document.currentScript.src);
  let scope = {};

  /** Where the server has our files with leave to keep them; undefined where it does not say. */
  function optionOfPage() {
    const options = document.getElementById('jupyter-config-data')?.textContent;
    return options ? JSON.parse(options).carrelFiles : undefined;
  }

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

  function style() {
    const link = document.createElement('link');
    Object.assign(link, { rel: 'stylesheet', href: new URL('views.css', here).href });
    document.head.append(link);
  }

  /**
   * Import our own modules, again where the network failed. A browser keeps the failure of a module,
   * also of one that another imports, so each retry has addresses of its own: the server answers
   * below `try1/` as it does without.
   */
  async function own() {
    const waits = optionOfPage() ? RETRY_WAITS_MS : [];
    for (let retries = 0; ; retries += 1) {
      const folder = retries ? new URL(`try${retries}/`, here) : here;
      try {
        return await Promise.all(MODULES.map(name => import(new URL(name, folder).href)));
      } catch (error) {
        if (retries === waits.length) {
          throw error;
        }
        await new Promise(resolve => setTimeout(resolve, waits[retries]));
      }
    }
  }

  async function extension() {
    const [apputils, statusbar, widgets, launcher, running, signaling, components, notebook] = await Promise.all(
      [
        '@jupyterlab/apputils',
        '@jupyterlab/statusbar',
        '@lumino/widgets',
        '@jupyterlab/launcher',
        '@jupyterlab/running',
        '@lumino/signaling',
        '@jupyterlab/ui-components',
        '@jupyterlab/notebook'
      ].map(shared)
    );
    const [{ makePlugin }, { makeWorkPlugin }, { makeOutputsPlugin }] = await own();
    style();
    const plugins = [
      makePlugin({ apputils, statusbar, widgets }),
      makeWorkPlugin({ apputils, statusbar, widgets, launcher, running, signaling, components }),
      makeOutputsPlugin({ notebook })
    ];
    return { __esModule: true, default: plugins };
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
