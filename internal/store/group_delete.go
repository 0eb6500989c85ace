package store

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A GroupRule declares what happens to the rows of a table when their group is deleted.
// The package that owns the table declares it, with one of the functions below. Every
// table with a column for a group has exactly one rule.
type GroupRule struct {
	Table  string
	Action GroupAction
	Column string // BlockGroup: holds the segment of the group
	Label  string // BlockGroup: plural noun for the error
	Owner  string // WithOwner: the table to whose rows the rows belong
	Reason string // KeepRows: why the rows are not deleted

	remove func(ctx context.Context, t *Tx, group resource.UID) error // DeleteRows, unless a foreign key does it
}

// A GroupAction is what a GroupRule declares.
type GroupAction int

// The actions of GroupRule.
const (
	BlockGroup GroupAction = iota + 1 // the group cannot be deleted while it has rows
	DeleteRows                        // the rows are deleted with the group
	KeepRows                          // the rows stay
	WithOwner                         // the rows belong to rows of another table, and are deleted with them
)

// BlocksGroup declares that a group cannot be deleted while a row of the table has its
// segment in a column. The label names the rows in the error.
func BlocksGroup(table, column, label string) GroupRule {
	return GroupRule{Table: table, Action: BlockGroup, Column: column, Label: label}
}

// DeletedWithGroup declares that remove deletes the rows of the table.
func DeletedWithGroup(
	table string, remove func(ctx context.Context, t *Tx, group resource.UID) error,
) GroupRule {
	return GroupRule{Table: table, Action: DeleteRows, remove: remove}
}

// DeletedByForeignKey declares that the database deletes the rows of the table, because its
// schema says ON DELETE CASCADE.
func DeletedByForeignKey(table string) GroupRule {
	return GroupRule{Table: table, Action: DeleteRows}
}

// DeletedKindWithGroup declares that the rows of a kind are deleted, without events, and
// subtracted from the counters. Their parent is the group.
func DeletedKindWithGroup(table string) GroupRule {
	return DeletedWithGroup(table, func(ctx context.Context, t *Tx, group resource.UID) error {
		n, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE parent = $1`, Segment(group))
		if err != nil || n == 0 {
			return err
		}
		return t.Count(ctx, table, group.NewChild(), -int(n))
	})
}

// KeptAfterGroup declares that the rows of the table stay when their group is deleted, and
// why.
func KeptAfterGroup(table, reason string) GroupRule {
	return GroupRule{Table: table, Action: KeepRows, Reason: reason}
}

// BelongsTo declares that each row of the table belongs to a row of another table, whose
// rule decides, although the table has a column for a group.
func BelongsTo(owner string, tables ...string) []GroupRule {
	rules := make([]GroupRule, len(tables))
	for i, table := range tables {
		rules[i] = GroupRule{Table: table, Action: WithOwner, Owner: owner}
	}
	return rules
}

// GroupRules returns the rules of the tables of the kernel.
func GroupRules() []GroupRule {
	return []GroupRule{
		DeletedWithGroup("counters", func(context.Context, *Tx, resource.UID) error {
			return nil // DeleteGroup calls DropCounters last, because removing the group counts
		}),
		KeptAfterGroup("outbox", "the audit log also shows what happened in groups that no longer exist"),
	}
}

// ClearGroup removes what a group contains before the group itself is deleted. The caller
// holds a lock on the group that lets nobody add to it. ClearGroup first applies all rules
// that block: it returns fault.FailedPrecondition, naming the labels in the order of the
// rules, if a row blocks the deletion. Then it deletes rows, also in the order of the rules.
func (t *Tx) ClearGroup(ctx context.Context, group resource.UID, rules []GroupRule) error {
	var references []Reference
	for _, r := range rules {
		if r.Action == BlockGroup {
			references = append(references, Reference{Table: r.Table, Column: r.Column, Label: r.Label})
		}
	}
	labels, err := t.ReferencedBy(ctx, group, references)
	if err != nil {
		return err
	}
	if len(labels) > 0 {
		return fault.NotEmpty("group", labels...)
	}
	for _, r := range rules {
		if r.remove == nil {
			continue
		}
		if err := r.remove(ctx, t, group); err != nil {
			return err
		}
	}
	return nil
}
