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

// recoverOwner writes a one-time link for an owner who can no longer sign in. Only a
// user of the data folder can run it, and no log contains the link.
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

// writeRecovery writes the changes to the owner's account, and the link.
func writeRecovery(out io.Writer, org resource.Group, r accounts.Recovery) error {
	switch {
	case r.Created:
		fmt.Fprintf(out, "%s now has an account in %s and is its owner.\n", r.Account.Email, org.Name)
	default:
		fmt.Fprintf(out, "%s chooses a new password at the link. This removes passkeys and the authenticator app.\n",
			r.Account.Email)
	}
	if r.AllowLocal {
		fmt.Fprintf(out, "Accounts of %s had been switched off. They can sign in again; "+
			"to switch them off, run holdfast iam accounts off.\n", org.Name)
	}
	_, err := fmt.Fprintf(out, "The link works once, until %s:\n%s\n",
		r.Link.ExpireTime.UTC().Format(time.RFC1123), r.Link.URL)
	return err
}

// organization returns the organization with a name or UID.
func (s *Server) organization(ctx context.Context, name string) (resource.Group, error) {
	iam := iamdb.New(s.store)
	if name == "" {
		return resource.Group{}, fault.Field("organization", "name the organization with --organization")
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
			return nil, fault.Field("arguments", "the command accepts only --%s", strings.Join(names, " and --"))
		}
		given[last] += " " + arg
	}
	return given, nil
}
