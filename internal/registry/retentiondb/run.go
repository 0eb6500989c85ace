package retentiondb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

// A RetentionPlan lists what the rules of a repo delete, or would delete in a dry run.
type RetentionPlan struct {
	Repo   resource.UID
	Rules  registry.Retention
	Images int // number of images to which the rules were applied
	Kept   map[registry.KeepReason]int
	Going  []GoingImage
	Tags   int           // number of deleted tags
	Bytes  int64         // size of the deleted manifests, and of the blobs in the repo that only these manifests need
	Life   time.Duration // how long the deleted images can be restored
	More   bool          // whether another run would delete more images

	Fingerprint string // identifies the images in Going
}

// A RetentionOrder has the options for applying rules.
type RetentionOrder struct {
	// Fingerprint is the fingerprint of a plan. Only the images of that plan are deleted. If it is "", everything that
	// the rules do not keep is deleted.
	Fingerprint string

	// Planned is the group or repo whose rules were due, for a scheduled run. If the repo is now under the rules of
	// another group or repo, or the rules no longer have a schedule, the run deletes nothing. Planned is "" if a
	// caller has requested the run.
	Planned resource.UID

	expected fingerprint // parsed Fingerprint; nil if Fingerprint is ""
}

// selection returns a function that reports whether an image may be deleted. It returns nil if all images may be
// deleted.
func (o RetentionOrder) selection() func(*node) bool {
	if o.expected == nil {
		return nil
	}
	return o.expected.has
}

// ApplyRetention applies the rules of a repo, and returns the plan that it has carried out. The deleted images move
// to the trash, if the group has one. A dry run executes the same transaction and rolls it back.
//
// Pushes to the repo, changes of its tags and restores wait until the transaction ends.
//
// ApplyRetention returns fault.NotFound if there is no such repo, or if no rules apply to it. It returns
// fault.FailedPrecondition if an image of the order's plan would be kept now or has changed, if the server deletes
// records of pulls earlier than the rules need them, or if there are too many manifests. If the repo follows another,
// a scheduled run does nothing, and other runs return fault.FailedPrecondition.
func (s *Store) ApplyRetention(
	ctx context.Context, repo resource.UID, order RetentionOrder,
) (plan RetentionPlan, _ error) {
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
			return fault.Unmet("FOLLOWS",
				"this repo follows another repo and has its tags; apply retention rules to the other repo")
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

// carryOut deletes the images that the rules do not keep, and completes the plan.
func (s *Store) carryOut(
	ctx context.Context, t Tx, j *judge, order RetentionOrder, d registrydb.Deletion, plan *RetentionPlan,
) error {
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
			left, err = registrydb.In(t.Tx).DeleteManifest(ctx, plan.Repo, n.digest, d.Frozen, d)
			if err != nil {
				return err
			}
		}
	}
	if len(v.gone) == 0 {
		return nil
	}
	run := registry.RetentionRun{
		Repo: plan.Repo, Rules: plan.Rules.UID, Tags: plan.Tags, Bytes: plan.Bytes, Planned: order.Planned != "",
	}
	for _, g := range plan.Going {
		run.Images = append(run.Images, g.Digest)
	}
	return t.Emit(ctx, resource.RetentionApplied, plan.Repo, plan.Repo.Parent(), nil, run)
}
