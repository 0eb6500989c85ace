package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A command is an operation of the operator, run by the server or, if none
// runs, by another process in its place.
type command func(ctx context.Context, s *Server, args []string, out io.Writer) error

var commands = map[string]command{
	"keys/list":   listKeys,
	"keys/rotate": rotateKeys,
	"keys/drop":   dropKey,
	"gc":          collectGarbage,
	"blobs/check": checkBlob,

	"organizations/verify":   verifyOrganization(true),
	"organizations/unverify": verifyOrganization(false),

	"providers/trust":   trustProvider(true),
	"providers/untrust": trustProvider(false),

	"owners/recover": recoverOwner,

	"budgets/set":  setBudget,
	"budgets/show": showBudget,
}

func listKeys(ctx context.Context, s *Server, _ []string, out io.Writer) error {
	keys, err := s.issuer.Keys(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tALGORITHM\tCREATED\tSIGNS")
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\n", k.ID, k.Algorithm, k.CreateTime.UTC().Format(time.RFC3339), k.Signs)
	}
	return w.Flush()
}

func rotateKeys(ctx context.Context, s *Server, _ []string, out io.Writer) error {
	id, err := s.issuer.Rotate(ctx)
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "made a new signing key", "key", id)
	fmt.Fprintln(out, id)
	return nil
}

func dropKey(ctx context.Context, s *Server, args []string, out io.Writer) error {
	if len(args) != 1 {
		return fault.Field("ID", "name one key")
	}
	if err := s.issuer.Drop(ctx, args[0]); err != nil {
		return err
	}
	s.log.WarnContext(ctx, "dropped a signing key; what it has signed is void", "key", args[0])
	fmt.Fprintln(out, args[0])
	return nil
}

// checkBlob reads one blob, and writes what it is.
func checkBlob(ctx context.Context, s *Server, args []string, out io.Writer) error {
	if len(args) != 1 {
		return fault.Field("arguments", "name the digest of one blob")
	}
	v, err := s.registry.Judge(ctx, args[0])
	if errors.Is(err, fault.InvalidArgument) {
		return err
	}
	if err != nil {
		s.log.WarnContext(ctx, "check a blob", "err", err)
		return fault.New(fault.Unavailable, "Unavailable: the blob cannot be read: %v", err)
	}
	fmt.Fprintln(out, v)
	return nil
}

// collectGarbage removes what the registry no longer needs, and writes what
// that was. A dry run removes nothing.
func collectGarbage(ctx context.Context, s *Server, args []string, out io.Writer) error {
	c := collection(s.cfg)
	c.DryRun = slices.Equal(args, []string{"dry-run"})
	if len(args) > 0 && !c.DryRun {
		return fault.Field("arguments", "there are none but --dry-run")
	}
	removed, err := s.registry.Collect(ctx, c)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(removed)
}

// verifyOrganization records whether the organization of a name or uid is
// verified, and writes its uid.
func verifyOrganization(verified bool) command {
	return func(ctx context.Context, s *Server, args []string, out io.Writer) error {
		name := strings.Join(args, " ")
		if name == "" {
			return fault.Field("organization", "name one")
		}
		uid, err := resource.ParseUID("organization", name)
		if err != nil {
			org, err := iamdb.New(s.store).Organization(ctx, name)
			if err != nil {
				return err
			}
			uid = org.UID
		}
		g, err := s.iam.Verify(ctx, uid, verified)
		if err != nil {
			return err
		}
		s.log.InfoContext(ctx, "noted whether an organization is verified",
			"organization", g.UID, "verified", g.Verified)
		fmt.Fprintln(out, g.UID)
		return nil
	}
}

// trustProvider records whether an identity provider speaks for its issuer to
// the whole installation, and writes its uid and issuer.
func trustProvider(trusted bool) command {
	return func(ctx context.Context, s *Server, args []string, out io.Writer) error {
		uid, err := resource.ParseUID("provider", strings.Join(args, " "))
		if err != nil {
			return err
		}
		p, err := s.iam.TrustProvider(ctx, uid, trusted)
		if err != nil {
			return err
		}
		s.log.InfoContext(ctx, "noted whether an identity provider is trusted",
			"provider", p.UID, "issuer", p.OIDC.Issuer, "trusted", p.Trusted)
		fmt.Fprintln(out, p.UID, p.OIDC.Issuer)
		return nil
	}
}
