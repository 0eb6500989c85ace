package retentiondb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

// A RetentionPlan is what the rules that apply to a repo delete: in a dry run what they would.
type RetentionPlan struct {
	Repo   resource.UID
	Rules  registry.Retention
	Images int // that were judged
	Kept   map[registry.KeepReason]int
	Going  []GoingImage
	Tags   int           // that go
	Bytes  int64         // of the manifests that go and of the blobs that only these need in the repo
	Life   time.Duration // how long it can be restored
	More   bool          // others would go with the next run

	Fingerprint string // of what goes
}

// A RetentionOrder says how rules are applied.
type RetentionOrder struct {
	// Fingerprint is that of a plan: nothing but the images of the plan is deleted. "" is whatever goes now.
	Fingerprint string

	// Planned are the rules that are applied because they are due, and not because somebody asks. Nothing is done if
	// these are not the rules of the repo any more.
	Planned resource.UID

	expected fingerprint // nil without one
}

// selection returns which images may go; nil is all.
func (o RetentionOrder) selection() func(*node) bool {
	if o.expected == nil {
		return nil
	}
	return o.expected.has
}

// ApplyRetention applies the rules of a repo, and returns what it has deleted. What goes to the trash can be restored. In a
// dry run it is the plan, decided in the same transaction, which is then undone.
//
// Nobody can push to the repo, tag anything or restore something until it is done. It returns fault.NotFound if there is no
// such repo, or if no rules apply to it; and fault.FailedPrecondition if an image of the order's plan would stay now or has
// changed, if pulls are not recorded for as long as the rules ask for, if there is too much to look through, or if the repo
// follows another. Rules that are due do nothing there.
func (s *Store) ApplyRetention(ctx context.Context, repo resource.UID, order RetentionOrder) (plan RetentionPlan, _ error) {
	var err error
	if order.Fingerprint != "" {
		if order.expected, err = parseFingerprint(order.Fingerprint); err != nil {
			return plan, err
		}
	}
	path, err := s.registry.RepoPath(ctx, repo)
	if err != nil {
		return plan, err
	}
	err = s.write(ctx, func(t Tx) error {
		if err := registrydb.In(t.Tx).LockRepoKey(ctx, repo); err != nil {
			return err
		}
		rules, err := s.retentionAbove(ctx, repo, t.Row)
		if err != nil {
			return err
		}
		plan = RetentionPlan{Repo: repo, Rules: rules}
		if order.Planned != "" && (rules.UID != order.Planned || rules.EveryDays == 0) {
			return nil
		}
		d, err := s.registry.DeletionFrom(ctx, registrydb.In(t.Tx), repo)
		if err != nil {
			return err
		}
		switch {
		case d.Follows && order.Planned != "":
			return nil
		case d.Follows:
			return fault.Unmet("FOLLOWS", "this repo follows another, and has its tags: rules are applied to that, and not here")
		}
		d.Together, d.Time, plan.Life = true, s.Time(), max(0, d.Life)
		j, err := s.judge(ctx, t, repo, path, rules, d)
		if err != nil {
			return err
		}
		return s.carryOut(ctx, t, j, order, d, &plan)
	})
	return plan, err
}

// carryOut deletes what a judge lets go.
func (s *Store) carryOut(ctx context.Context, t Tx, j *judge, order RetentionOrder, d registrydb.Deletion, plan *RetentionPlan) error {
	v := j.decide(order.selection())
	plan.Images, plan.Kept, plan.Going, plan.More = v.images, v.kept, v.describe(), v.more
	actual := fingerprintOf(plan.Going)
	if order.expected != nil {
		if err := order.expected.compare(actual, j); err != nil {
			return err
		}
	}
	plan.Fingerprint = actual.String()
	if err := t.measure(ctx, v, plan); err != nil {
		return err
	}
	for _, n := range v.gone {
		plan.Tags += len(n.tags)
		for left := true; left; {
			var err error
			if left, err = registrydb.In(t.Tx).DeleteManifest(ctx, plan.Repo, n.digest, d.Frozen, d); err != nil {
				return err
			}
		}
	}
	if len(v.gone) == 0 {
		return nil
	}
	run := registry.RetentionRun{Repo: plan.Repo, Rules: plan.Rules.UID, Tags: plan.Tags, Bytes: plan.Bytes, Planned: order.Planned != ""}
	for _, g := range plan.Going {
		run.Images = append(run.Images, g.Digest)
	}
	return t.Emit(ctx, resource.RetentionApplied, plan.Repo, plan.Repo.Parent(), nil, run)
}
