package iamdb

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// A HolderQuery asks for the bindings that give one of Roles at a place: those on
// Groups, which are the place and what is above it. Identity, if set, narrows it
// down to one. Any asks for those of any role, and whether or not they count.
type HolderQuery struct {
	Now      int64 // the time at which they count, in milliseconds
	Groups   []resource.UID
	Roles    []resource.UID
	Identity resource.UID
	Any      bool
}

// Holders returns one page of the bindings a Holding asks for, by uid or by
// creation time. The total is counted: it is as long as the answer.
func (s *Store) Holders(ctx context.Context, h HolderQuery, p page.Request) (page.Page[resource.BoundRole], error) {
	var out page.Page[resource.BoundRole]
	if len(h.Groups) == 0 || len(h.Roles) == 0 && !h.Any {
		return out, nil
	}
	col, ok := bindings.OrderColumn(p.Order.Field)
	if !ok {
		return out, fmt.Errorf("cannot list holders by %q", p.Order.Field)
	}
	q := store.Query{Engine: s.Engine, Table: bindings.Table, Column: col, Page: p}
	where := holderCondition(&q, h)
	if err := s.Row(ctx, `SELECT count(*) FROM role_bindings AS t WHERE `+where, q.Args,
		&out.Total); err != nil || out.Total == 0 {
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

func holderCondition(q *store.Query, h HolderQuery) string {
	var roles []int64
	for _, uid := range h.Roles {
		roles = append(roles, store.Segment(uid))
	}
	// Not by the segments of the groups: a place may have another's.
	text := fmt.Sprintf("t.parent IN (SELECT g.seg FROM groups AS g WHERE g.uid IN (SELECT v FROM %s AS s))", q.Engine.Each(q, h.Groups))
	if !h.Any {
		text += fmt.Sprintf(" AND %s AND t.role IN (SELECT v FROM %s AS s)", counts(q.Arg(h.Now)), q.Engine.Each(q, roles))
	}
	if h.Identity != "" {
		text += " AND t.identity = " + q.Arg(string(h.Identity))
	}
	return text
}
