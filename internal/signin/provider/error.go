package provider

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
)

// An Error is a failure of a provider. Its text may be shown to people, because it
// reveals nothing about our network or secrets.
type Error struct {
	text  string
	cause error
}

func (e *Error) Error() string { return e.text }

func (e *Error) Unwrap() error { return e.cause }

// discoveryReason returns the reason why a discovery document cannot be used.
func discoveryReason(err error) string {
	_, broken := errors.AsType[*url.Error](err)
	switch text := err.Error(); {
	case broken:
		return outbound.Reason(err)
	case strings.Contains(text, "issuer did not match"), strings.Contains(text, "issuer URL provided to client"):
		return "it names another issuer; compare every character, also a slash at the end"
	case len(text) > 3 && text[3] == ' ': // the text begins with the HTTP status of the response
		return "the response status was " + text[:3] + ", not 200"
	}
	return "it is not valid JSON of a discovery document"
}

// tokenReason returns the reason why a provider refused a code, in the words of the
// provider if there are any.
func tokenReason(err error) string {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return outbound.Reason(err)
	}
	switch refused.ErrorCode {
	case "invalid_client", "unauthorized_client":
		return "it does not know this client, or the client secret is wrong (" + refused.ErrorCode + ")"
	case "invalid_grant":
		return "the code is not valid or has expired (invalid_grant)"
	case "":
		if refused.Response != nil {
			return fmt.Sprintf("the response status was %d", refused.Response.StatusCode)
		}
		return "the response cannot be read"
	}
	return input.Short(refused.ErrorCode + " " + refused.ErrorDescription)
}

// verifyReason returns the reason why an ID token is not valid.
func verifyReason(err error) string {
	_, expired := errors.AsType[*oidc.TokenExpiredError](err)
	switch text := err.Error(); {
	case expired:
		return "it has expired"
	case strings.Contains(text, "audience"):
		return "it is for another client"
	case strings.Contains(text, "issued by a different provider"):
		return "it is from another issuer"
	case strings.Contains(text, "signature"), strings.Contains(text, "keys"):
		return "its signature cannot be verified"
	}
	return "it is malformed"
}
