package findingdb

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/tablecache"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

var pullRules = store.Kind[vuln.PullRule]{
	Table: "pull_rules", Label: "rule",
	Created: resource.RuleCreated, Updated: resource.RuleUpdated, Deleted: resource.RuleDeleted,
	Columns: func(r *vuln.PullRule) []store.Column {
		return []store.Column{
			store.JSON("detail", r), // fields that also have a column are read from the column
			store.Key(&r.UID),
			store.Time("create_ms", &r.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &r.UpdateTime),
		}
	},
}

// PullRuleList describes the orders of a list of rules.
var PullRuleList = pullRules.List(page.Order{Field: "uid"})

// InsertPullRule adds a rule. It returns fault.NotFound if its group or its target does
// not exist, and fault.FailedPrecondition if the group has too many rules.
func (s *Store) InsertPullRule(ctx context.Context, r vuln.PullRule) error {
	return s.Write(ctx, func(tx *store.Tx) error {
		t := In(tx)
		if err := t.RequireGroup(ctx, r.Home()); err != nil {
			return err
		}
		if err := t.requireTarget(ctx, r.Target); err != nil {
			return err
		}
		var n int
		if err := t.Row(ctx, `SELECT count(*) FROM pull_rules WHERE parent = $1`, []any{store.Segment(r.Home())},
			&n); err != nil {
			return err
		}
		if n >= vuln.MaxPullRules {
			return fault.Unmet("TOO_MANY_RULES", "a group has at most %d rules", vuln.MaxPullRules)
		}
		if err := t.rulesChanged(ctx); err != nil {
			return err
		}
		return store.Insert(ctx, tx, &pullRules, r)
	})
}

// rulesChanged makes every replica read the rules again.
func (t Tx) rulesChanged(ctx context.Context) error {
	return t.TableChanged(ctx, store.RevisionPullRules) // also clears the cached verdicts about pulls
}

// PullRule returns a rule, or fault.NotFound.
func (s *Store) PullRule(ctx context.Context, uid resource.UID) (vuln.PullRule, error) {
	return store.Get(ctx, s.DB, &pullRules, uid)
}

// PullRules returns one page of rules.
func (s *Store) PullRules(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[vuln.PullRule], error) {
	return store.List(ctx, s.DB, &pullRules, r, f, p)
}

// UpdatePullRule replaces before with after. It returns store.ErrStale if the stored
// rule differs from before, and fault.NotFound if the target does not exist.
func (s *Store) UpdatePullRule(ctx context.Context, before, after vuln.PullRule) (vuln.PullRule, error) {
	return after, s.Write(ctx, func(tx *store.Tx) error {
		t := In(tx)
		if before.Target != after.Target {
			if err := t.requireTarget(ctx, after.Target); err != nil {
				return err
			}
		}
		if err := t.rulesChanged(ctx); err != nil {
			return err
		}
		return store.Update(ctx, tx, &pullRules, before, &after)
	})
}

// DeletePullRule removes a rule. It returns fault.NotFound if there is no such rule.
func (s *Store) DeletePullRule(ctx context.Context, uid resource.UID) error {
	return s.Write(ctx, func(tx *store.Tx) error {
		r, err := store.Lock(ctx, tx, &pullRules, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		if err := In(tx).rulesChanged(ctx); err != nil {
			return err
		}
		return store.Remove(ctx, tx, &pullRules, r)
	})
}

// A RuleSet contains all rules at one time. It is immutable.
type RuleSet struct {
	byTarget map[resource.UID][]vuln.PullRule
}

// Empty reports whether there are no rules.
func (s *RuleSet) Empty() bool { return len(s.byTarget) == 0 }

// Over returns the rules that apply to a repo.
func (s *RuleSet) Over(repo resource.UID) (rules []vuln.PullRule) {
	if len(s.byTarget) == 0 {
		return nil
	}
	for _, g := range append(repo.Ancestors(), repo) {
		rules = append(rules, s.byTarget[g]...)
	}
	return rules
}

// NewRuleCache returns a cache of all rules. Every pull needs the rules of its repo and of the groups above the repo.
func NewRuleCache(s *Store) *tablecache.Cache[RuleSet] {
	return tablecache.New(s.DB, store.RevisionPullRules, func(ctx context.Context) (*RuleSet, error) {
		stored, err := pullRules.All(ctx, s.Rows, ``)
		if err != nil {
			return nil, fmt.Errorf("read rules: %w", err)
		}
		set := &RuleSet{byTarget: map[resource.UID][]vuln.PullRule{}}
		for _, r := range stored {
			set.byTarget[r.Target] = append(set.byTarget[r.Target], r)
		}
		return set, nil
	})
}
