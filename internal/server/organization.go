package server

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// createOrganization creates an organization whose owner has a local account, and writes
// its UID and the one-time link with which the owner sets a password. The organization
// pays for itself. No log contains the link.
func createOrganization(ctx context.Context, s *Server, args []string, out io.Writer) error {
	given, err := argsOfOrganization(args, "email")
	if err != nil {
		return err
	}
	if given["email"] == "" {
		return fault.Field("email", "name the owner's e-mail address with --email")
	}
	g, a, link, err := s.accounts.CreateOrganization(ctx, given["organization"], resource.OrgUnspecified,
		resource.Account{Email: given["email"]})
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "created an organization", "organization", g.UID, "owner", a.Identity)
	_, err = fmt.Fprintf(out, "%s\nThe owner sets a password at this link, which works once, until %s:\n%s\n",
		g.UID, link.ExpireTime.UTC().Format(time.RFC1123), link.URL)
	return err
}

// setPayer sets the organization that pays for another one, and writes its UID. If
// no payer is named, the organization pays for itself.
func setPayer(ctx context.Context, s *Server, args []string, out io.Writer) error {
	given, err := argsOfOrganization(args, "payer")
	if err != nil {
		return err
	}
	org, err := s.organization(ctx, given["organization"])
	if err != nil {
		return err
	}
	payer := org
	if given["payer"] != "" {
		if payer, err = s.organization(ctx, given["payer"]); err != nil {
			return err
		}
	}
	if err := iamdb.New(s.store).SetPayer(ctx, org.UID, payer.UID); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "changed the payer of an organization", "organization", org.UID, "payer", payer.UID)
	_, err = fmt.Fprintln(out, payer.UID)
	return err
}

// argsOfOrganization returns the arguments NAME and flag=VALUE of a command. NAME is the
// value of "organization". Names may have spaces.
func argsOfOrganization(args []string, flag string) (map[string]string, error) {
	given, err := namedArgs(append([]string{"organization="}, args...), "organization", flag)
	if err != nil {
		return nil, err
	}
	given["organization"] = strings.TrimSpace(given["organization"])
	if given["organization"] == "" {
		return nil, fault.Field("organization", "name one organization")
	}
	return given, nil
}
