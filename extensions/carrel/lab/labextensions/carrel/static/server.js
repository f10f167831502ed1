// Requests to this workspace's own server, below `{base}/carrel/`.

/** What the page says about its server; empty outside JupyterLab and Notebook. */
function pageConfig() {
  const element = document.getElementById('jupyter-config-data');
  return element ? JSON.parse(element.textContent || '{}') : {};
}

/** Whether this page belongs to a Jupyter server that we can ask. */
export function hasServer() {
  return Boolean(pageConfig().baseUrl);
}

function headers(config) {
  const found = document.cookie.match(/(?:^|;\s*)_xsrf=([^;]*)/);
  return {
    ...(found && { 'X-XSRFToken': found[1] }),
    ...(config.token && { Authorization: `token ${config.token}` })
  };
}

/**
 * Ask the server; a refusal is an Error whose message is a sentence for a person.
 *
 * `path` is relative to `{base}/carrel/`. Never counts as somebody's activity.
 */
export async function ask(path, method = 'GET', body = undefined) {
  const config = pageConfig();
  const url = `${config.baseUrl}carrel/${path}${path.includes('?') ? '&' : '?'}no_track_activity=1`;
  let response;
  try {
    response = await fetch(url, {
      method,
      headers: { ...headers(config), ...(body !== undefined && { 'Content-Type': 'application/json' }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin',
      cache: 'no-store'
    });
  } catch {
    throw new Error('The workspace does not answer.');
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = new Error(answer.message || `The workspace answered ${response.status}.`);
    throw Object.assign(error, { status: response.status, code: answer.code, fields: answer.fields });
  }
  return answer;
}
