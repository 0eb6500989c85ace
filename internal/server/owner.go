package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
)

// recoverOwner writes a one-time link for an owner who cannot sign in any more.
// Only whoever has the data folder gets here, and the link is in no log.
func recoverOwner(ctx context.Context, s *Server, args []string, out io.Writer) error {
	given, err := namedArgs(args, "organization", "email")
	if err != nil {
		return err
	}
	org, err := s.organization(ctx, given["organization"])
	if err != nil {
		return err
	}
	r, err := s.accounts.RecoverOwner(ctx, org, given["email"])
	if err != nil {
		return err
	}
	return writeRecovery(out, org, r)
}

// writeRecovery says what was done for an owner, and prints the link.
func writeRecovery(out io.Writer, org resource.Group, r accounts.Recovery) error {
	switch {
	case r.Created:
		fmt.Fprintf(out, "%s has an account of %s now, and owns it.\n", r.Account.Email, org.Name)
	default:
		fmt.Fprintf(out, "%s chooses a new password at the link. Passkeys and the authenticator app end with it.\n",
			r.Account.Email)
	}
	if r.AllowLocal {
		fmt.Fprintf(out, "Accounts of %s had been switched off. They can sign in again; "+
			"holdfast iam accounts off switches them off.\n", org.Name)
	}
	_, err := fmt.Fprintf(out, "The link works once, until %s:\n%s\n",
		r.Link.ExpireTime.UTC().Format(time.RFC1123), r.Link.URL)
	return err
}

// organization returns the organization of a name or uid.
func (s *Server) organization(ctx context.Context, name string) (resource.Group, error) {
	iam := iamdb.New(s.store)
	if name == "" {
		return resource.Group{}, fault.Field("organization", "name one with --organization")
	}
	org, err := iam.Organization(ctx, resource.Identifier(strings.ToLower(name)))
	if errors.Is(err, fault.NotFound) {
		uid, bad := resource.ParseUID("organization", name)
		if bad != nil || !uid.IsRoot() {
			return org, fault.New(fault.NotFound, "Not found: there is no organization %s", name)
		}
		return iam.Group(ctx, uid)
	}
	return org, err
}

// namedArgs returns arguments of the form name=value. Values may have spaces.
func namedArgs(args []string, names ...string) (map[string]string, error) {
	given, last := map[string]string{}, ""
next:
	for _, arg := range args {
		for _, name := range names {
			if value, ok := strings.CutPrefix(arg, name+"="); ok {
				given[name], last = value, name
				continue next
			}
		}
		if last == "" {
			return nil, fault.Field("arguments", "there are none but --%s", strings.Join(names, " and --"))
		}
		given[last] += " " + arg
	}
	return given, nil
}
