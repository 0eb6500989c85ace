package iam

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// asOf is the value of the flag --as-of: a time in the past.
type asOf string

func (t *asOf) register(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(t), "as-of", "",
		"show the state at a `TIME` in the past, such as 2026-10-31T23:00:00Z, or 7d for seven days ago")
}

// time returns the time of the flag, or nil if the flag is not set.
func (t asOf) time() (*timestamppb.Timestamp, error) {
	if t == "" {
		return nil, nil
	}
	return past("as-of", string(t))
}

// past parses the value of a required flag as a time in the past.
func past(flag, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, problem.Usage("--%s is needed", flag)
	}
	moment, err := noun.ParseMoment(text, time.Now())
	if err != nil {
		return nil, err
	}
	return timestamppb.New(moment), nil
}

// pastAccess returns the commands about grants in the past.
func pastAccess(a *noun.App) *cobra.Command {
	cmd := a.Branch("access", "Show grants in the past, and changes of grants", accessList(a), accessGroups(a),
		accessDiff(a))
	cmd.Long = "The past is shown only for resources that you may see now."
	return cmd
}

func accessList(a *noun.App) *cobra.Command {
	var p noun.Paging
	var when asOf
	var on, identity string
	cmd := &cobra.Command{
		Use: "list --as-of TIME", Short: "List the role bindings in effect at a time", Aliases: []string{"ls"},
		Long: "Lists the bindings on a group and its parent groups, or of an identity, that were in effect at a time.",
		Example: "  holdfast iam access list --on acme/platform --as-of 2026-10-31\n" +
			"  holdfast iam access list --identity ann --as-of 30d",
		Args: cobra.NoArgs,
	}
	p.Register(cmd)
	when.register(cmd)
	a.RegisterRef(cmd, &on, "on", noun.Groups(), "bindings on `GROUP` and its parent groups")
	a.RegisterRef(cmd, &identity, "identity", Identities(), "bindings of `IDENTITY`")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) (err error) {
		if on == "" && identity == "" {
			return problem.Usage("--on or --identity is needed")
		}
		req := &accesspb.ListPastGrantsRequest{}
		if req.AsOf, err = past("as-of", string(when)); err != nil {
			return err
		}
		if on != "" {
			if req.PlaceUid, err = a.Resolve(ctx, noun.Groups(), on); err != nil {
				return err
			}
		}
		if identity != "" {
			if req.IdentityUid, err = a.Resolve(ctx, Identities(), identity); err != nil {
				return err
			}
		}
		return a.PrintAll(ctx, pastGrants(), req, p)
	})
	return cmd
}

// pastGrants returns the Noun for role bindings with the former names of their groups.
func pastGrants() noun.Noun {
	return noun.Noun{
		Use: "grants", One: "grant", Message: noun.MessageOf(&accesspb.Grant{}), ID: "bindingUid", Sorted: true,
		Columns: output.Columns(output.Text("identity", grantee).InCSV("identity.name"), "role=role.name", "group=group.name",
			"createTime", "until=expireTime"),
		Wide: append(output.Columns("binding=bindingUid"), bindingUIDs()...),
	}
}

func accessGroups(a *noun.App) *cobra.Command {
	var p noun.Paging
	var when asOf
	cmd := &cobra.Command{
		Use: "groups GROUP --as-of TIME", Short: "List the groups that were directly in a group at a time",
		Example: "  holdfast iam access groups acme --as-of 30d",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.CompleteArgs(noun.Groups()),
	}
	p.Register(cmd)
	when.register(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) (err error) {
		req := &accesspb.ListPastGroupsRequest{}
		if req.AsOf, err = past("as-of", string(when)); err != nil {
			return err
		}
		if req.Uid, err = a.Resolve(ctx, noun.Groups(), args[0]); err != nil {
			return err
		}
		groups := noun.Noun{
			Use: "groups", One: "group", Message: noun.MessageOf(&accesspb.PastGroup{}), Sorted: true,
			Columns: output.Columns("name", "uid", "deleted"),
		}
		return a.PrintAll(ctx, groups, req, p)
	})
	return cmd
}

func accessDiff(a *noun.App) *cobra.Command {
	var p noun.Paging
	var from, to, on string
	cmd := &cobra.Command{
		Use: "diff --from TIME --to TIME", Short: "List the roles that were gained and lost between two times, and by whom",
		Long: "Roles that were gained and lost again in between are not listed. Roles whose capabilities have changed\n" +
			"are listed at the end, because the change applies to all their holders.",
		Example: "  holdfast iam access diff --from 2026-10-01 --to 2026-11-01 --on acme/prod\n" +
			"  holdfast iam access diff --from 7d --to 1s",
		Args: cobra.NoArgs,
	}
	p.Register(cmd)
	cmd.Flags().StringVar(&from, "from", "", "`TIME` to compare with, such as 2026-10-31, or 7d for seven days ago")
	cmd.Flags().StringVar(&to, "to", "", "later `TIME` to compare")
	a.RegisterRef(cmd, &on, "on", noun.Groups(), "only changes on `GROUP` and its subgroups")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) (err error) {
		req := &accesspb.DiffAccessRequest{}
		if req.FromTime, err = past("from", from); err != nil {
			return err
		}
		if req.ToTime, err = past("to", to); err != nil {
			return err
		}
		if on != "" {
			if req.PlaceUid, err = a.Resolve(ctx, noun.Groups(), on); err != nil {
				return err
			}
		}
		empty := func(proto.Message) string { return "no changes" }
		answer, err := a.PrintAnswer(ctx, accessChanges(), req, p, empty)
		if err != nil {
			return err
		}
		found := answer.(*accesspb.DiffAccessResponse)
		if found.GetIncomplete() {
			a.Note("%s", noun.IncompleteNote)
		}
		noteRoleChanges(a, found)
		return nil
	})
	return cmd
}

// accessChanges returns the Noun for roles that identities have gained or lost.
func accessChanges() noun.Noun {
	who := func(c *accesspb.GrantChange) string { return called(c.GetGrant().GetIdentity()) }
	group := func(c *accesspb.GrantChange) *iampb.RoleBindingGroup { return c.GetGrant().GetGroup() }
	return noun.Noun{
		Use: "changes", One: "change", Message: noun.MessageOf(&accesspb.GrantChange{}), ID: "grant.bindingUid",
		Columns: output.Columns("time", "kind", output.Text("identity", who).InCSV("grant.identity.name"),
			"role=grant.role.name", groupPath(group), output.NameOf("by", "actorUid")),
		Wide: output.Columns("binding=grant.bindingUid", "identityUid=grant.identity.uid", "roleUid=grant.role.uid",
			"groupUid=grant.group.uid", "actorUid"),
	}
}

// noteRoleChanges prints the roles whose capabilities have changed.
func noteRoleChanges(a *noun.App, found *accesspb.DiffAccessResponse) {
	for _, r := range found.GetRoles() {
		var parts []string
		for sign, capabilities := range map[string][]capabilitiespb.Capability{"+": r.GetGained(), "-": r.GetLost()} {
			for _, c := range capabilities {
				parts = append(parts, sign+output.EnumWord(c.Descriptor().Values().ByNumber(c.Number())))
			}
		}
		a.Note("the role %s has changed: %s", output.Printable(r.GetRole().GetName()),
			strings.Join(slices.Sorted(slices.Values(parts)), " "))
	}
}
