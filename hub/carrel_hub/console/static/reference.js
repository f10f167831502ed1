// Shows the OpenAPI document by Swagger UI, for reading only.
(() => {
  const place = document.getElementById("reference");
  const headers = JSON.parse(document.body.getAttribute("hx-headers"));
  // The page has its main part and its title already: a layout of operations and models alone.
  const inPage = (system) => ({
    components: {
      InPage: ({ getComponent }) => {
        const parts = ["SvgAssets", "FilterContainer", "operations", "Models"];
        const made = parts.map((name) => system.React.createElement(getComponent(name, true), { key: name }));
        return system.React.createElement("div", { className: "swagger-ui" }, made);
      },
    },
  });
  window.SwaggerUIBundle({
    domNode: place,
    url: place.dataset.document,
    docExpansion: "none",
    defaultModelsExpandDepth: 0,
    deepLinking: true,
    filter: true,
    validatorUrl: null,
    plugins: [inPage],
    layout: "InPage",
    requestInterceptor: (request) => Object.assign(request, { headers: { ...request.headers, ...headers } }),
    supportedSubmitMethods: [],
    tagsSorter: "alpha",
  });
})();
