package iam

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func tree(a *noun.App) *cobra.Command {
	var drawing drawing
	var ascii bool
	cmd := &cobra.Command{
		Use: "tree [GROUP]", Short: "Print groups as a tree, with their contents and role bindings",
		Long:    "Prints GROUP and its subgroups. The default is the organization of the settings, or all visible groups.",
		Example: "  holdfast iam tree acme\n  holdfast iam tree acme/platform --depth 2 --ascii",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.CompleteArgs(noun.Groups()),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if f := cmd.Flags().Lookup("output"); f.Changed && f.Value.String() != "table" {
				return problem.Usage("a tree can only be drawn").Hint("for -o " + f.Value.String() +
					": holdfast iam groups list --parent GROUP --recursive")
			}
			f, err := readForest(ctx, a, args)
			if err != nil {
				return err
			}
			drawing.app, drawing.forest, drawing.marks = a, f, unicodeMarks
			if ascii {
				drawing.marks = asciiMarks
			}
			drawing.draw()
			return nil
		}),
	}
	cmd.Flags().BoolVar(&ascii, "ascii", false, "use ASCII characters only")
	cmd.Flags().IntVar(&drawing.depth, "depth", 0, "print `N` levels of groups (0: all)")
	cmd.Flags().BoolVar(&drawing.hideBindings, "no-bindings", false, "do not print role bindings")
	return cmd
}

// A forest contains groups and their contents, by the UID of the group.
type forest struct {
	roots      []*iampb.Group
	children   map[string][]*iampb.Group
	identities map[string]int
	bindings   map[string][]*iampb.RoleBinding
}

// readForest reads a group and its subgroups, or all groups that the caller can see. It
// reads groups and their contents concurrently, as three lists.
func readForest(ctx context.Context, a *noun.App, args []string) (*forest, error) {
	top, err := top(ctx, a, args)
	if err != nil {
		return nil, err
	}
	f := &forest{children: map[string][]*iampb.Group{}, identities: map[string]int{},
		bindings: map[string][]*iampb.RoleBinding{}}
	groups := map[string]*iampb.Group{}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if top != "" {
			m, err := a.Get(ctx, noun.Groups(), top)
			if err != nil {
				return err
			}
			groups[top] = m.Interface().(*iampb.Group)
		}
		return each(ctx, a, noun.Groups(), top, func(m *iampb.Group) { groups[m.GetUid()] = m })
	})
	g.Go(func() error {
		return each(ctx, a, Identities(), top, func(m *iampb.Identity) { f.identities[noun.ParentUID(m.GetUid())]++ })
	})
	g.Go(func() error {
		return each(ctx, a, roleBindings(), top, func(m *iampb.RoleBinding) {
			f.bindings[m.GetGroup().GetUid()] = append(f.bindings[m.GetGroup().GetUid()], m)
		})
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	f.plant(groups)
	return f, nil
}

// top returns the UID of the group to draw, or "" for all groups.
func top(ctx context.Context, a *noun.App, args []string) (string, error) {
	organization, err := a.Value("organization")
	if err != nil {
		return "", err
	}
	return a.ResolveAny(ctx, noun.Groups(), append(args, organization.Text)[0])
}

// each calls f for each resource of a noun below top, in the order of UIDs, which the
// server reads fastest.
func each[T any](ctx context.Context, a *noun.App, n noun.Noun, top string, f func(T)) error {
	method := n.Method("List")
	req := noun.NewMessage(method.Input())
	if top != "" {
		noun.Put(req, "uidp.descendants_of", top)
	}
	for m, err := range a.Items(ctx, method, req, noun.Paging{OrderBy: "uid"}) {
		if err != nil {
			return err
		}
		f(m.Interface().(T))
	}
	return nil
}

// plant sorts groups by name below their parents. A group whose parent the caller cannot
// see is a root.
func (f *forest) plant(groups map[string]*iampb.Group) {
	for uid, g := range groups {
		if parent := noun.ParentUID(uid); groups[parent] != nil {
			f.children[parent] = append(f.children[parent], g)
			continue
		}
		f.roots = append(f.roots, g)
	}
	byName := func(x, y *iampb.Group) int {
		return cmp.Or(strings.Compare(x.GetName(), y.GetName()), strings.Compare(x.GetUid(), y.GetUid()))
	}
	slices.SortFunc(f.roots, byName)
	for _, children := range f.children {
		slices.SortFunc(children, byName)
	}
	for _, bindings := range f.bindings {
		slices.SortFunc(bindings, func(x, y *iampb.RoleBinding) int {
			return cmp.Or(strings.Compare(holder(x), holder(y)), strings.Compare(x.GetRole().GetName(), y.GetRole().GetName()))
		})
	}
}

// holder returns the name of the holder of a role. A person who has not signed in yet has
// only a UID.
func holder(b *iampb.RoleBinding) string { return called(b.GetIdentity()) }

// grantee is like holder, for a grant.
func grantee(g *accesspb.Grant) string { return called(g.GetIdentity()) }

func called(i *iampb.RoleBindingIdentity) string {
	return cmp.Or(i.GetDisplayName(), i.GetName(), i.GetEmail(), i.GetUid())
}

// marks are the characters from which the lines of a tree are drawn.
type marks struct{ branch, last, bar, gap, arrow string }

var (
	unicodeMarks = marks{"├── ", "└── ", "│   ", "    ", "→"}
	asciiMarks   = marks{"|-- ", "`-- ", "|   ", "    ", "->"}
)

type drawing struct {
	app          *noun.App
	forest       *forest
	marks        marks
	depth        int
	hideBindings bool
}

func (d *drawing) draw() {
	for _, g := range d.forest.roots {
		fmt.Fprintln(d.app.Out, d.label(g))
		d.below(g, "", 1)
	}
	if len(d.forest.roots) == 0 {
		d.app.Note("no groups")
	}
}

// below draws the contents of a group: first its role bindings, then its subgroups.
func (d *drawing) below(g *iampb.Group, indent string, level int) {
	bindings, children := d.forest.bindings[g.GetUid()], d.forest.children[g.GetUid()]
	if d.hideBindings {
		bindings = nil
	}
	if d.depth > 0 && level >= d.depth {
		children = nil
	}
	for i, b := range bindings {
		mark := d.marks.branch
		if i == len(bindings)-1 && len(children) == 0 {
			mark = d.marks.last
		}
		text := holder(b) + " " + d.marks.arrow + " " + b.GetRole().GetName()
		fmt.Fprintln(d.app.Out, indent+mark+d.app.Paint(output.Faint, output.Printable(text)))
	}
	for i, child := range children {
		mark, gap := d.marks.branch, d.marks.bar
		if i == len(children)-1 {
			mark, gap = d.marks.last, d.marks.gap
		}
		fmt.Fprintln(d.app.Out, indent+mark+d.label(child))
		d.below(child, indent+gap, level+1)
	}
}

// label returns a group's name and the number of its direct contents.
func (d *drawing) label(g *iampb.Group) string {
	var counts []string
	for _, c := range []struct {
		n         int
		one, many string
	}{
		{len(d.forest.children[g.GetUid()]), "group", "groups"},
		{d.forest.identities[g.GetUid()], "identity", "identities"},
		{len(d.forest.bindings[g.GetUid()]), "binding", "bindings"},
	} {
		if c.n == 1 {
			counts = append(counts, "1 "+c.one)
		} else if c.n > 1 {
			counts = append(counts, fmt.Sprint(c.n, " ", c.many))
		}
	}
	label := d.app.Paint(output.Bold, output.Printable(g.GetName()))
	if g.GetDisplayName() != "" {
		label += " " + output.Printable(g.GetDisplayName())
	}
	if len(counts) > 0 {
		label += " (" + strings.Join(counts, ", ") + ")"
	}
	return label
}
