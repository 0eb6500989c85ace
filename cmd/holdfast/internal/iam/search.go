package iam

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

// Search returns the command that finds resources of all kinds.
func Search(a *noun.App) *cobra.Command {
	req := &accesspb.SearchRequest{}
	cmd := &cobra.Command{
		Use: "search TEXT", Short: "Find resources by name, path, uid, digest, tag, CVE, package or address",
		Long: "Finds the resources that TEXT may refer to, best match first, among those that you can list. TEXT can be\n" +
			"a uid, a path, a name or its beginning, an e-mail address, a digest or at least eight of its first\n" +
			"digits, a tag, the id or an alias of an advisory, a package URL, or the id of a request. At most five of\n" +
			"each kind are printed.",
		Example: "  holdfast search platform\n  holdfast search CVE-2026-1234\n  holdfast search acme/platform/app -o id",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			req.Query = args[0]
			found, err := signin.Call(ctx, accesspb.NewAccessServiceClient(a).Search, req, "query=TEXT", "page_size=--limit")
			if err != nil {
				return err
			}
			return noun.ShowAnswer(ctx, a, searchResults().View(), found, found.GetResults(), nil)
		}),
	}
	cmd.Flags().Int32Var(&req.PageSize, "limit", 0, "print at most `N` results (0: 50, the maximum)")
	return cmd
}

func searchResults() noun.Noun {
	where := func(r *accesspb.SearchResult) string {
		text := cmp.Or(r.GetPath(), r.GetDisplayName(), r.GetName(), r.GetUid())
		switch r.GetKind() {
		case accesspb.SearchKind_SEARCH_KIND_PACKAGE:
			return r.GetName() + " in " + text
		case accesspb.SearchKind_SEARCH_KIND_AUDIT_ENTRY:
			return r.GetName() + " in " + text
		}
		return text
	}
	return noun.Noun{
		Use: "results", One: "result", Message: noun.MessageOf(&accesspb.SearchResult{}),
		Columns: output.Columns("kind", output.Text("what", where).InCSV("path"), "match"),
		Wide:    output.Columns("name", "uid", "digest", "parentUid", "entryId", "time", "description"),
	}
}

// counts returns the command that counts the contents of groups.
func counts(a *noun.App) *cobra.Command {
	var p noun.Paging
	cmd := &cobra.Command{
		Use: "counts GROUP", Short: "Count the contents of the groups in a group, including all subgroups",
		Long: "Lists the groups directly in GROUP, with the number of groups, repos, workloads, roles and role bindings\n" +
			"in each of them and its subgroups. Kinds that you may not list are not counted.",
		Example: "  holdfast iam counts acme\n  holdfast iam counts acme/platform -o wide",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.CompleteArgs(noun.Groups()),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			group, err := a.Resolve(ctx, noun.Groups(), args[0])
			if err != nil {
				return err
			}
			if err := a.PrintAll(ctx, countedGroups(), &accesspb.CountChildrenRequest{Uid: group}, p); err != nil {
				return err
			}
			req := &accesspb.CountChildrenRequest{Uid: group, PageSize: 1}
			total, err := signin.Call(ctx, accesspb.NewAccessServiceClient(a).CountChildren, req, "uid=GROUP")
			if err != nil {
				return err
			}
			a.Note("total: %s", sayCounts(total.GetCounts()))
			return nil
		}),
	}
	p.Register(cmd)
	return cmd
}

// countedKinds are the kinds of resources that are counted.
var countedKinds = []struct {
	name  string
	one   string // singular of the name
	count func(*accesspb.ChildCounts) *accesspb.ChildCount
}{
	{"groups", "group", (*accesspb.ChildCounts).GetGroups}, {"repos", "repo", (*accesspb.ChildCounts).GetRepos},
	{"identities", "identity", (*accesspb.ChildCounts).GetIdentities},
	{"roles", "role", (*accesspb.ChildCounts).GetRoles},
	{"bindings", "binding", (*accesspb.ChildCounts).GetRoleBindings},
}

func countedGroups() noun.Noun {
	n := noun.Noun{
		Use: "groups", One: "group", Message: noun.MessageOf(&accesspb.CountedGroup{}), Columns: output.Columns("name"),
	}
	for _, k := range countedKinds {
		n.Columns = append(n.Columns, output.Text(k.name, func(g *accesspb.CountedGroup) string {
			if c := k.count(g.GetCounts()); c != nil {
				return fmt.Sprint(c.GetAll())
			}
			return ""
		}))
		n.Wide = append(n.Wide, output.Text("direct"+strings.ToUpper(k.name[:1])+k.name[1:],
			func(g *accesspb.CountedGroup) string {
				if c := k.count(g.GetCounts()); c != nil {
					return fmt.Sprint(c.GetDirect())
				}
				return ""
			}))
	}
	n.Wide = append(n.Wide, output.Columns("uid")...)
	return n
}

// sayCounts returns the counts of a group as text.
func sayCounts(c *accesspb.ChildCounts) string {
	var texts []string
	for _, k := range countedKinds {
		if n := k.count(c); n != nil {
			texts = append(texts, noun.Count(n.GetAll(), k.one))
		}
	}
	return strings.Join(texts, ", ")
}
