// Package iam contains the commands for identity and access management, one file for each
// kind of resource, and presets for the workloads of known platforms.
package iam

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/budget"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
)

// Command returns the commands for identity and access management.
func Command(a *noun.App) *cobra.Command {
	cmd := a.Branch("iam", "Decide who may do what: groups, identities, roles and bindings")
	for _, n := range nouns() {
		sub := a.Command(n)
		if n.Use == identityProviders().Use {
			addWizard(a, sub)
		}
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(tree(a), counts(a), can(a), whoCan(a), pastAccess(a), issuers(a), accountsCommand(a),
		peopleCommand(a))
	return cmd
}

func nouns() []noun.Noun {
	return []noun.Noun{
		noun.Groups(), Identities(), Roles(), roleBindings(),
		identityProviders(), accountAssociations(), invites(), groupMappings(), budget.Budgets(),
	}
}

// grants returns the Noun for role bindings that give a capability on a group.
func grants(group string) noun.Noun {
	inherited := func(g *accesspb.Grant) string {
		if g.GetGroup().GetUid() == group {
			return "no"
		}
		return "yes"
	}
	return noun.Noun{
		Use: "grants", One: "grant", Message: noun.MessageOf(&accesspb.Grant{}), ID: "bindingUid",
		Sorted: true,
		Columns: output.Columns(output.Text("identity", grantee).InCSV("identity.name"), "role=role.name",
			groupPath((*accesspb.Grant).GetGroup), output.Text("inherited", inherited), output.Text("through", source),
			"since=createTime", "until=expireTime"),
		Wide: append(output.Columns("binding=bindingUid"), bindingUIDs()...),
	}
}

// source returns what gives a role: a binding or a team. It also says if the role has no effect now.
func source(g *accesspb.Grant) string {
	from := "binding"
	if t := g.GetTeam(); t != nil {
		from = "team " + t.GetTeamName()
	}
	if g.GetDeactivated() {
		from += " (deactivated)"
	}
	return from
}

// aboutPlaces explains the arguments of the questions.
const aboutPlaces = "PLACE is a group, or the path of a repo, an identity, a role or an identity provider.\n" +
	"CAPABILITY can also be a verb: pull (manifest.list), push (manifest.create), read (groups.list) or\n" +
	"administer (role_bindings.create)."

func can(a *noun.App) *cobra.Command {
	var when asOf
	cmd := &cobra.Command{
		Use: "can IDENTITY CAPABILITY PLACE", Short: "Check whether an identity has a capability, and through which binding",
		Long: "Prints yes or no, and the bindings that grant the capability. The exit code is 0 for yes and 3 for no.\n" +
			aboutPlaces,
		Example: "  holdfast iam can me repo.create acme/platform\n" +
			"  holdfast iam can acme/platform/ci push acme/platform/app\n" +
			"  holdfast iam can acme/platform/ci groups.list acme/platform\n" +
			"  holdfast iam can ann repo.delete acme/platform --as-of 2026-10-31T23:00:00Z",
		Args: cobra.ExactArgs(3), ValidArgsFunction: a.CompleteQuestion(Identities, nil, noun.Groups),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			identity, err := a.Resolve(ctx, Identities(), args[0])
			if err != nil {
				return err
			}
			group, err := resolvePlace(ctx, a, args[2])
			if err != nil {
				return err
			}
			req := &accesspb.CheckAccessRequest{
				IdentityUid: identity, Capability: capabilityOf(args[1]), PlaceUid: group, Explain: true,
			}
			if req.AsOf, err = when.time(); err != nil {
				return err
			}
			found, err := signin.Call(ctx, accesspb.NewAccessServiceClient(a).CheckAccess, req, "identity_uid=IDENTITY",
				"capability=CAPABILITY", "place_uid=PLACE", "as_of=--as-of")
			if err != nil {
				return suggestCapability(err, args[1])
			}
			say := func() { sayAccess(ctx, a, found, group) }
			if err := noun.ShowAnswer(ctx, a, grants(group).View(), found, found.GetGrants(), say); err != nil {
				return err
			}
			if found.GetIncomplete() {
				a.Note("%s", noun.IncompleteNote)
			}
			if !found.GetAllowed() {
				return problem.New(problem.ExitNo, "") // "no" is reported by the exit code, without a message
			}
			return nil
		}),
	}
	when.register(cmd)
	return cmd
}

// suggestCapability adds the most similar capability to the problem that a capability
// does not exist.
func suggestCapability(err error, name string) error {
	p, ok := errors.AsType[*problem.Problem](err)
	if !ok || !strings.Contains(p.Text, "there is no such capability") {
		return err
	}
	hint := "list them: holdfast iam roles capabilities"
	if near := noun.Nearest(name, output.EnumWords(capabilitiespb.Capability(0).Descriptor())); near != "" {
		hint = "did you mean " + near
	}
	return p.Hint(hint, "or use one of the verbs "+verbList())
}

// verbs are words for the capability that people usually mean.
var verbs = []struct{ word, capability string }{
	{"pull", "manifest.list"}, {"push", "manifest.create"}, {"read", "groups.list"},
	{"administer", "role_bindings.create"},
}

// verbList returns the verbs with their capabilities.
func verbList() string {
	var words []string
	for _, v := range verbs {
		words = append(words, v.word+" ("+v.capability+")")
	}
	return strings.Join(words, ", ")
}

// capabilityOf returns the capability of a verb. It returns other words unchanged.
func capabilityOf(word string) string {
	for _, v := range verbs {
		if v.word == word {
			return v.capability
		}
	}
	return word
}

// resolvePlace returns the UID of a group or another resource.
func resolvePlace(ctx context.Context, a *noun.App, text string) (string, error) {
	uid, err := a.Resolve(ctx, noun.Groups(), text)
	if err == nil || problem.From(ctx, err).Code != problem.ExitNotFound {
		return uid, err
	}
	for _, kind := range []string{"repos", noun.Identities, "roles", "identity_providers"} {
		req := &accesspb.ResolvePathRequest{Kind: kind, Path: text}
		found, failed := accesspb.NewAccessServiceClient(a).ResolvePath(ctx, req)
		if failed == nil && len(found.GetResources()) == 1 {
			return found.GetResources()[0].GetUid(), nil
		}
	}
	return "", err
}

func sayAccess(ctx context.Context, a *noun.App, found *accesspb.CheckAccessResponse, group string) {
	if !found.GetAllowed() {
		fmt.Fprintln(a.Out, a.Paint(output.Red, "no"))
		sayLack(ctx, a, found.GetLack())
		return
	}
	fmt.Fprintln(a.Out, a.Paint(output.Green, "yes"))
	var groups []string
	for _, g := range found.GetGrants() {
		groups = append(groups, g.GetGroup().GetUid())
	}
	called := a.Called(ctx, groups...)
	for _, g := range found.GetGrants() {
		how := "on"
		if g.GetGroup().GetUid() != group {
			how = "inherited from"
		}
		line := fmt.Sprintf("  %s %s %s", g.GetRole().GetName(), how, called(g.GetGroup().GetUid()).Path)
		if end := g.GetExpireTime(); end != nil {
			line += ", until " + moment(end)
		}
		if through := throughTeam(g); through != "" {
			line += ", " + through
		}
		fmt.Fprintln(a.Out, output.Printable(line))
	}
}

// throughTeam says through which team an identity holds a role, or returns "" for a binding.
func throughTeam(g *accesspb.Grant) string {
	t := g.GetTeam()
	if t == nil {
		return ""
	}
	return "through team " + t.GetTeamName() + " of provider " + t.GetIdentityProviderName()
}

// sayLack prints why an identity lacks a capability, and which role would give it.
func sayLack(ctx context.Context, a *noun.App, lack *accesspb.Lack) {
	if lack == nil {
		return
	}
	near := lack.GetNearest()
	path := a.Called(ctx, near.GetGroup().GetUid())(near.GetGroup().GetUid()).Path
	why := "  they hold no role there"
	switch lack.GetKind() {
	case accesspb.LackKind_LACK_KIND_CAPABILITY:
		why = fmt.Sprintf("  they are %s of %s, which does not have it", near.GetRole().GetName(), path)
	case accesspb.LackKind_LACK_KIND_START:
		why = fmt.Sprintf("  they will be %s of %s, which has it, but are not yet", near.GetRole().GetName(), path)
	case accesspb.LackKind_LACK_KIND_TIME:
		why = fmt.Sprintf("  they were %s of %s, which has it, until %s", near.GetRole().GetName(), path,
			moment(near.GetExpireTime()))
	case accesspb.LackKind_LACK_KIND_DEACTIVATED:
		why = "  their company directory has deactivated them; their roles have no effect until it activates them again"
	}
	fmt.Fprintln(a.Out, output.Printable(why))
	if lack.GetRole() == nil {
		return
	}
	var who []string
	for _, g := range lack.GetGivers() {
		who = append(who, called(g.GetIdentity()))
	}
	line := "  the role " + lack.GetRole().GetName() + " would do"
	if len(who) > 0 {
		line += "; it can be given by " + strings.Join(who, ", ")
	}
	fmt.Fprintln(a.Out, output.Printable(line))
}

func whoCan(a *noun.App) *cobra.Command {
	var p noun.Paging
	var when asOf
	cmd := &cobra.Command{
		Use: "who-can CAPABILITY PLACE", Short: "List the identities that have a capability, and through which binding",
		Long: "Lists every binding that grants the capability. An identity with several bindings is listed several times.\n" +
			"Identities that hold a role through a team of a company directory come last.\n" +
			aboutPlaces,
		Example: "  holdfast iam who-can groups.delete acme/platform\n" +
			"  holdfast iam who-can push acme/platform/app\n" +
			"  holdfast iam who-can groups.delete acme/platform --as-of 30d",
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.CompleteQuestion(nil, noun.Groups),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			group, err := resolvePlace(ctx, a, args[1])
			if err != nil {
				return err
			}
			req := &accesspb.ListAccessRequest{Capability: capabilityOf(args[0]), PlaceUid: group}
			if req.AsOf, err = when.time(); err != nil {
				return err
			}
			return suggestCapability(a.PrintAll(ctx, grants(group), req, p), args[0])
		}),
	}
	p.Register(cmd)
	when.register(cmd)
	return cmd
}
