package iamdb

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A HolderQuery selects the bindings of Roles on Groups that are active at the time Now.
type HolderQuery struct {
	Now    int64          // time in milliseconds since 1970
	Groups []resource.UID // a resource and its ancestors
	Roles  []resource.UID
}

// Holders returns one page of the bindings that h selects, ordered by uid or by
// creation time, with their exact number as the total. After them come the people who
// hold one of the roles through a team.
func (s *Store) Holders(ctx context.Context, h HolderQuery, p page.Request) (page.Page[resource.BoundRole], error) {
	var out page.Page[resource.BoundRole]
	if len(h.Groups) == 0 || len(h.Roles) == 0 {
		return out, nil
	}
	out, err := s.boundHolders(ctx, h, p)
	if err != nil {
		return out, err
	}
	return s.teamHolders(ctx, h, p, out)
}

// boundHolders is Holders without teams.
func (s *Store) boundHolders(
	ctx context.Context, h HolderQuery, p page.Request,
) (out page.Page[resource.BoundRole], _ error) {
	col, ok := bindings.OrderColumn(p.Order.Field)
	if !ok {
		return out, fmt.Errorf("cannot list holders by %q", p.Order.Field)
	}
	q := store.Query{Engine: s.Engine, Table: bindings.Table, Column: col, Page: p}
	where := holderCondition(&q, h)
	if err := s.Row(ctx, `SELECT count(*) FROM role_bindings AS t WHERE `+where, q.Args,
		&out.Total); err != nil || out.Total == 0 || p.After != nil && p.After.Key == teamCursor {
		return out, err
	}
	text := fmt.Sprintf(`%s WHERE %s ORDER BY %s%s OFFSET %s`,
		bindings.Select(), where+q.After(), q.Order(), q.Limit(p.Size+1), q.Arg(p.Skip))
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		b, err := bindings.Scan(row)
		out.Items = append(out.Items, b)
		return len(out.Items) > p.Size, err
	})
	if len(out.Items) > p.Size {
		out.Items = out.Items[:p.Size]
		last := bindings.Cursor(out.Items[p.Size-1], col)
		out.Last = &last
	}
	return out, err
}

// HeldBy returns all bindings of an identity on groups, ordered by uid, including bindings that are not active, and
// then the roles that the identity holds there through teams. It uses an index and is fast enough for frequent calls,
// because one identity has few bindings on a path of groups.
func (s *Store) HeldBy(
	ctx context.Context, identity resource.UID, groups []resource.UID,
) (held []resource.BoundRole, _ error) {
	if len(groups) == 0 {
		return nil, nil
	}
	args := []any{string(identity)}
	var parents []string
	for _, g := range groups {
		args = append(args, store.Segment(g))
		parents = append(parents, fmt.Sprintf("$%d", len(args)))
	}
	text := bindings.Select() + ` WHERE t.identity = $1 AND t.parent IN (` + strings.Join(parents, ", ") + `)`
	err := s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) {
		b, err := bindings.Scan(row)
		if err == nil && slices.Contains(groups, b.Group()) { // two UIDs can end in the same segment
			held = append(held, b)
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(held, func(a, b resource.BoundRole) int { return strings.Compare(string(a.UID), string(b.UID)) })
	through, err := s.teamHeld(ctx, identity, groups)
	return append(held, through...), err
}

func holderCondition(q *store.Query, h HolderQuery) string {
	var roles []int64
	for _, uid := range h.Roles {
		roles = append(roles, store.Segment(uid))
	}
	// The condition compares whole UIDs, because two UIDs can end in the same segment.
	return fmt.Sprintf("t.parent IN (SELECT g.seg FROM groups AS g WHERE g.uid IN (SELECT v FROM %s AS s)) AND %s "+
		"AND t.role IN (SELECT v FROM %s AS s)",
		q.Engine.Unnest(q, h.Groups), activeAt(q.Arg(h.Now)), q.Engine.Unnest(q, roles))
}
