// A form with an `assertion` field is signed by a passkey before it is sent. Without this, the password is the way.
(() => {
  "use strict";
  if (!window.PublicKeyCredential?.parseRequestOptionsFromJSON) return;
  document.documentElement.classList.add("signs");

  async function ask(address, form, submitter) {
    const fields = new FormData(form, submitter);
    fields.append("for", new URL(form.action).pathname);
    const answer = await fetch(address, { method: "POST", body: fields });
    if (!answer.ok) throw new Error("The desk did not answer. Reload the page and try again.");
    return answer.json();
  }

  async function sign(form, submitter) {
    const { nonce, options } = await ask(form.dataset.challenge ?? "/passkeys/challenge", form, submitter);
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
    const { id, response } = (await navigator.credentials.get({ publicKey })).toJSON();
    const { clientDataJSON: client_data, authenticatorData: authenticator_data, signature } = response;
    form.elements.assertion.value = JSON.stringify({ nonce, id, client_data, authenticator_data, signature });
  }

  async function make(form, submitter) {
    const { nonce, options } = await ask("/passkeys/new", form, submitter);
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
    const { id, response } = (await navigator.credentials.create({ publicKey })).toJSON();
    const { clientDataJSON: client_data, authenticatorData: authenticator_data, publicKey: public_key } = response;
    form.elements.key.value = JSON.stringify({ nonce, id, client_data, authenticator_data, public_key });
  }

  function complain(form, error) {
    let place = form.querySelector("[role=alert]");
    if (!place) {
      place = document.createElement("p");
      place.setAttribute("role", "alert");
      form.append(place);
    }
    place.textContent = error.name === "NotAllowedError" ? "No passkey was used; nothing was done." : error.message;
    const typed = form.querySelector(".by-password");
    typed?.classList.add("wanted");
    typed?.querySelector("input").focus();
  }

  // Before any other listener: what they send has to be signed.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const { assertion, key, password } = form.elements;
    const steps = [];
    const isNo = event.submitter?.formNoValidate;
    // A new key is made first: an older one signs for just that key.
    if ("makesKey" in form.dataset && !key.value) steps.push(make);
    if (assertion && !assertion.value && !password?.value && !isNo) steps.push(sign);
    if (!steps.length) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    form.dataset.signing = "";  // it stays where it is: what the page no longer has is sent nowhere
    try {
      for (const step of steps) await step(form, event.submitter);
      form.requestSubmit(event.submitter);
    } catch (error) {
      complain(form, error);
      return;  // a key that was made stays for the next try
    } finally {
      delete form.dataset.signing;
    }
    // What was signed counts once; a form that stays on the page is signed again.
    setTimeout(() => { for (const field of [assertion, key]) if (field) field.value = ""; });
  }, true);

  // Whoever came for a certain page, as a notification leads to one, is asked before they tap on anything.
  document.querySelector("form[data-at-once]")?.requestSubmit();
})();
