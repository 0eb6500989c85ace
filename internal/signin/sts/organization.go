package sts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

const (
	maxTrusting = 50 // greatest number of identities of an organization with which a credential is compared
	maxListed   = 5  // greatest number of identities in an error
)

// assumeIn returns a token of the identity of an organization that trusts a credential. Unless the credential is
// accepted, the error does not reveal whether the organization exists, or which issuers it trusts.
func (s *Service) assumeIn(
	ctx context.Context, organization resource.UID, bearer string, claims token.Claims,
) (Token, error) {
	tok, err := parse(bearer)
	if err != nil {
		return Token{}, err
	}
	var found []resource.UID
	if resource.Storable(tok.Issuer) && resource.Storable(tok.Subject) { // otherwise a database cannot look for it
		found, err = s.store.IdentitiesTrusting(ctx, organization, tok.Issuer, tok.Subject, maxTrusting+1)
	}
	if err != nil {
		return Token{}, err
	}
	accepting, err := s.accepting(ctx, found[:min(len(found), maxTrusting)], bearer)
	if err != nil {
		return Token{}, err
	}
	switch {
	case len(accepting) == 1 && len(found) <= maxTrusting:
		return s.assume(ctx, accepting[0], bearer, claims)
	case len(accepting) > 1:
		slices.Sort(accepting)
		names := fmt.Sprint(accepting[:min(len(accepting), maxListed)])
		return Token{}, refused("", "several identities of the organization trust this token: name one of them as the user: "+
			strings.Trim(names, "[]"))
	}
	return Token{}, &fault.Error{
		Code: fault.PermissionDenied,
		Message: "Permission denied: no identity of the organization trusts this token, or too many may trust it: " +
			"name the identity as the user (" + reference(ctx) + ")",
	}
}

// accepting returns the identities that accept a credential. It returns fault.Unavailable if an identity cannot be
// compared with the credential now.
func (s *Service) accepting(ctx context.Context, identities []resource.UID, bearer string) ([]resource.UID, error) {
	var accepting []resource.UID
	for _, uid := range identities {
		p, _, err := s.principal(ctx, uid)
		if err == nil {
			_, err = s.accept(ctx, p, bearer)
		}
		switch {
		case err == nil:
			accepting = append(accepting, uid)
		case errors.Is(err, fault.NotFound), errors.Is(err, fault.PermissionDenied), errors.Is(err, fault.Unauthenticated):
		default:
			return nil, err
		}
	}
	return accepting, nil
}
