import { useEffect } from "preact/hooks";
import { Page } from "../../ui";

/** Account opens the account page, which is not part of the console, for links of earlier versions. */
export default function Account() {
  useEffect(() => location.replace("/account"), []);
  return <Page title="Account" lead={<a href="/account">Your account</a>} />;
}
