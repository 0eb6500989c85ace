// Package grouprule declares and applies what happens to the rows of a table when their group is deleted.
package grouprule

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Rule declares what happens to the rows of a table when their group is deleted.
// The package that owns the table declares the rule, with one of the functions below.
// Every table that has a column for a group has exactly one rule.
type Rule struct {
	Table  string
	Action Action
	Column string // for Block: the column that contains the segment of the group
	Label  string // for Block: plural noun for the rows in the error
	Owner  string // for WithOwner: the table whose rows own these rows
	Reason string // for Keep: why the rows are not deleted

	// for Delete: deletes the rows; nil if a foreign key does it
	remove func(ctx context.Context, t *store.Tx, group resource.UID) error
}

// An Action is the action of a Rule.
type Action int

// These are the actions of a Rule.
const (
	Block     Action = iota + 1 // the group cannot be deleted while it has rows
	Delete                      // the rows are deleted with the group
	Keep                        // the rows stay
	WithOwner                   // the rows belong to rows of another table, and are deleted with them
)

// Blocks declares that a group cannot be deleted while a row in the table has the
// group's segment in the column. The label names the rows in the error.
func Blocks(table, column, label string) Rule {
	return Rule{Table: table, Action: Block, Column: column, Label: label}
}

// Deletes declares that remove deletes the rows of the table.
func Deletes(
	table string, remove func(ctx context.Context, t *store.Tx, group resource.UID) error,
) Rule {
	return Rule{Table: table, Action: Delete, remove: remove}
}

// Cascades declares that the database deletes the rows of the table, because its
// schema says ON DELETE CASCADE.
func Cascades(table string) Rule {
	return Rule{Table: table, Action: Delete}
}

// DeletesKind declares that the rows of a kind are deleted without events, and
// subtracted from the counters. The group must be their parent.
func DeletesKind(table string) Rule {
	return Deletes(table, func(ctx context.Context, t *store.Tx, group resource.UID) error {
		n, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE parent = $1`, store.Segment(group))
		if err != nil || n == 0 {
			return err
		}
		return t.Count(ctx, table, group.NewChild(), -int(n))
	})
}

// Keeps declares that the rows of the table stay when their group is deleted, and
// why.
func Keeps(table, reason string) Rule {
	return Rule{Table: table, Action: Keep, Reason: reason}
}

// BelongsTo declares that each row in the tables belongs to a row in the table owner.
// The rule of owner decides, although the tables have a column for a group.
func BelongsTo(owner string, tables ...string) []Rule {
	rules := make([]Rule, len(tables))
	for i, table := range tables {
		rules[i] = Rule{Table: table, Action: WithOwner, Owner: owner}
	}
	return rules
}

// Kernel returns the rules for the tables that package store owns.
func Kernel() []Rule {
	return []Rule{
		Deletes("counters", func(context.Context, *store.Tx, resource.UID) error {
			return nil // DeleteGroup calls DropCounters at its end, because deleting the group still changes counters
		}),
		Keeps("outbox", "the audit log also shows what happened in groups that no longer exist"),
	}
}

// Apply removes the content of a group before the group itself is deleted. The caller
// holds a lock on the group that prevents additions. Apply first applies all rules that
// block. If a row blocks the deletion, it returns fault.FailedPrecondition with the labels
// in the order of the rules. Then it deletes rows, also in the order of the rules.
func Apply(ctx context.Context, t *store.Tx, group resource.UID, rules []Rule) error {
	var references []store.Reference
	for _, r := range rules {
		if r.Action == Block {
			references = append(references, store.Reference{Table: r.Table, Column: r.Column, Label: r.Label})
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
