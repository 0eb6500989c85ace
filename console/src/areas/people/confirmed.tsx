import { Page } from "../../ui";

/** Confirmed is the page after a repeated sign-in, in the tab that was opened for it. */
export default function Confirmed() {
  return (
    <Page title="You have signed in again">
      <p>
        Close this tab, go back to where you were, and do it once more. You will not be asked again for ten minutes.
      </p>
      <p>
        <button type="button" class="primary" onClick={() => window.close()}>
          Close this tab
        </button>
      </p>
    </Page>
  );
}
