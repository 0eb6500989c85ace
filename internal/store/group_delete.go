package store

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A GroupRule declares what happens to the rows of a table when their group is deleted.
// The package that owns the table declares the rule, with one of the functions below.
// Every table that has a column for a group has exactly one rule.
type GroupRule struct {
	Table  string
	Action GroupAction
	Column string // for BlockGroup: the column that contains the segment of the group
	Label  string // for BlockGroup: plural noun for the rows in the error
	Owner  string // for WithOwner: the table whose rows own these rows
	Reason string // for KeepRows: why the rows are not deleted

	// for DeleteRows: deletes the rows; nil if a foreign key does it
	remove func(ctx context.Context, t *Tx, group resource.UID) error
}

// A GroupAction is the action of a GroupRule.
type GroupAction int

// These are the actions of a GroupRule.
const (
	BlockGroup GroupAction = iota + 1 // the group cannot be deleted while it has rows
	DeleteRows                        // the rows are deleted with the group
	KeepRows                          // the rows stay
	WithOwner                         // the rows belong to rows of another table, and are deleted with them
)

// BlocksGroup declares that a group cannot be deleted while a row in the table has the
// group's segment in the column. The label names the rows in the error.
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

// DeletedKindWithGroup declares that the rows of a kind are deleted without events, and
// subtracted from the counters. The group must be their parent.
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

// BelongsTo declares that each row in the tables belongs to a row in the table owner.
// The rule of owner decides, although the tables have a column for a group.
func BelongsTo(owner string, tables ...string) []GroupRule {
	rules := make([]GroupRule, len(tables))
	for i, table := range tables {
		rules[i] = GroupRule{Table: table, Action: WithOwner, Owner: owner}
	}
	return rules
}

// GroupRules returns the rules for the tables that this package owns.
func GroupRules() []GroupRule {
	return []GroupRule{
		DeletedWithGroup("counters", func(context.Context, *Tx, resource.UID) error {
			return nil // DeleteGroup calls DropCounters at its end, because deleting the group still changes counters
		}),
		KeptAfterGroup("outbox", "the audit log also shows what happened in groups that no longer exist"),
	}
}

// ClearGroup removes the content of a group before the group itself is deleted. The caller
// holds a lock on the group that prevents additions. ClearGroup first applies all rules that
// block. If a row blocks the deletion, it returns fault.FailedPrecondition with the labels
// in the order of the rules. Then it deletes rows, also in the order of the rules.
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
