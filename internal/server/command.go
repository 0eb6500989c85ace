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
	"github.com/holdfast-dev/holdfast/internal/access/namedb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A command is an operation for the operator. The running server executes it or, if
// there is none, another process with the same settings.
type command func(ctx context.Context, s *Server, args []string, out io.Writer) error

var commands = map[string]command{
	"keys/list":   listKeys,
	"keys/rotate": rotateKeys,
	"keys/drop":   dropKey,
	"gc":          collectGarbage,
	"blobs/check": checkBlob,

	"organizations/create":   createOrganization,
	"organizations/payer":    setPayer,
	"organizations/verify":   verifyOrganization(true),
	"organizations/unverify": verifyOrganization(false),
	"organizations/release":  releaseName,

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
	s.log.InfoContext(ctx, "created a new signing key", "key", id)
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
	s.log.WarnContext(ctx, "dropped a signing key; the tokens that it has signed are void", "key", args[0])
	fmt.Fprintln(out, args[0])
	return nil
}

// checkBlob reads one blob and writes the verdict about it.
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

// collectGarbage removes blobs that the registry no longer needs, and writes the
// totals. A dry run removes nothing.
func collectGarbage(ctx context.Context, s *Server, args []string, out io.Writer) error {
	c := collection(s.cfg)
	c.DryRun = slices.Equal(args, []string{"dry-run"})
	if len(args) > 0 && !c.DryRun {
		return fault.Field("arguments", "gc accepts only --dry-run")
	}
	removed, err := s.registry.Collect(ctx, c)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(removed)
}

// verifyOrganization returns a command that records whether an organization, given by
// name or UID, is verified, and writes its UID.
func verifyOrganization(verified bool) command {
	return func(ctx context.Context, s *Server, args []string, out io.Writer) error {
		name := strings.Join(args, " ")
		if name == "" {
			return fault.Field("organization", "name one organization")
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
		s.log.InfoContext(ctx, "changed the verification of an organization",
			"organization", g.UID, "verified", g.Verified)
		fmt.Fprintln(out, g.UID)
		return nil
	}
}

// releaseName is a command that ends the reservation of an organization's previous name,
// so that any organization can use it.
func releaseName(ctx context.Context, s *Server, args []string, out io.Writer) error {
	if len(args) != 1 {
		return fault.Field("name", "give one name")
	}
	if err := namedb.New(s.store).Release(ctx, args[0]); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "released the name of an organization", "name", args[0])
	fmt.Fprintln(out, args[0])
	return nil
}

// trustProvider returns a command that records whether the whole installation trusts
// an identity provider to speak for its issuer, and writes its UID and issuer.
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
		s.log.InfoContext(ctx, "changed the trust in an identity provider",
			"provider", p.UID, "issuer", p.OIDC.Issuer, "trusted", p.Trusted)
		fmt.Fprintln(out, p.UID, p.OIDC.Issuer)
		return nil
	}
}
