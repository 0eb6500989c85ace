package sts

import (
	"errors"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
)

// issuerClasses are common issuers and their classes for metrics.
var issuerClasses = []struct{ issuer, class string }{
	{"https://token.actions.githubusercontent.com", "github"},
	{"https://gitlab.com", "gitlab"},
	{"https://accounts.google.com", "google"},
	{"https://login.microsoftonline.com", "azure"},
	{"https://sts.windows.net", "azure"},
	{"https://agent.buildkite.com", "buildkite"},
}

// classOf returns the class of an issuer, for metrics.
func (s *Service) classOf(issuer string) string {
	if issuer == s.issuer.Address() {
		return metric.Own
	}
	for _, k := range issuerClasses {
		if rest, ok := strings.CutPrefix(issuer, k.issuer); ok && (rest == "" || rest[0] == '/') {
			return k.class
		}
	}
	return metric.Other
}

// proofPrefix is the start of the proof of an AWS account: "POST " in base64url.
const proofPrefix = "UE9TVC"

// count counts an exchange. A failed exchange has the class of the issuer that the
// credential names, even if the credential was not verified.
func (s *Service) count(t Token, bearer string, err error) {
	class := t.class
	if err != nil {
		class = metric.Other
		if tok, bad := issuers.Parse(bearer); bad == nil {
			class = s.classOf(tok.Issuer)
		} else if strings.HasPrefix(bearer, proofPrefix) {
			class = metric.AWS
		}
	}
	s.cfg.Metrics.Exchanges.Add(1, class, outcomeOf(err))
}

// outcomeOf returns the outcome of an exchange, for metrics.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return metric.OK
	case errors.Is(err, fault.PermissionDenied):
		return metric.Denied
	case errors.Is(err, fault.Unauthenticated), errors.Is(err, fault.InvalidArgument):
		return metric.Invalid
	case errors.Is(err, fault.Unavailable):
		return metric.Unavailable
	}
	return metric.Failed
}
