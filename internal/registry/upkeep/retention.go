package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
)

// Retention applies the retention rules of repos. It is safe for concurrent use.
type Retention struct {
	store *retentiondb.Store
	turns *fairlimit.Limiter
	log   *slog.Logger
	now   func() time.Time
}

// NewRetention returns a Retention for the repos in db.
func NewRetention(db *retentiondb.Store, log *slog.Logger, now func() time.Time) *Retention {
	return &Retention{store: db, turns: fairlimit.YieldToWriters(), log: log, now: now}
}

// Apply applies the rules of a repo when it is the turn of its tenant. It waits for a turn because each
// application locks a repo, and on SQLite blocks all writers.
func (r *Retention) Apply(
	ctx context.Context, repo resource.UID, order retentiondb.RetentionOrder,
) (retentiondb.RetentionPlan, error) {
	end, err := r.turns.Acquire(ctx, r.store.Tenant(ctx, repo))
	if err != nil {
		return retentiondb.RetentionPlan{}, err
	}
	defer end()
	return r.store.ApplyRetention(ctx, repo, order)
}

// retentionRound is the number of organizations that have a turn in one round.
const retentionRound = 1000

// Run applies the rules that are due and returns the number of deleted images. Each tenant processes one repo
// at a time, and a tenant with many images to delete waits between its turns until all others have had theirs.
// Several replicas may call Run at the same time. A failure is logged and does not stop the other repos.
func (r *Retention) Run(ctx context.Context) (images int, _ error) {
	start := r.now()
	unfinished := map[resource.Tenant]retentiondb.RetentionTurn{} // repos that need a turn, by tenant
	for {
		due, err := r.takeDue(ctx, start, unfinished)
		if err != nil {
			return images, err
		}
		if due+len(unfinished) == 0 {
			return images, nil
		}
		for tenant, turn := range unfinished {
			deleted, unfinishedTurn := r.applyTurn(ctx, turn)
			if ctx.Err() != nil {
				return images, ctx.Err()
			}
			images += deleted
			if !unfinishedTurn {
				delete(unfinished, tenant)
			}
		}
	}
}

// takeDue takes a repo for each tenant that has rules due at start and has no repo in turns, and adds it to
// turns. It returns the number of groups and repos whose rules are due, including those that another replica has
// taken.
func (r *Retention) takeDue(
	ctx context.Context, start time.Time, turns map[resource.Tenant]retentiondb.RetentionTurn,
) (int, error) {
	due, err := r.store.RetentionDue(ctx, start, retentionRound)
	if err != nil {
		return 0, err
	}
	for _, place := range due {
		tenant := r.store.Tenant(ctx, place)
		if _, ok := turns[tenant]; ok {
			continue
		}
		turn, err := r.store.TakeRetention(ctx, place, start)
		if err != nil {
			return 0, err
		}
		if turn.Repo != "" {
			turns[tenant] = turn
		}
	}
	return len(due), nil
}

// applyTurn applies the rules of one repo. It returns the number of deleted images, and whether the repo needs another
// turn. A failure is logged and ends the repo's turns.
func (r *Retention) applyTurn(ctx context.Context, turn retentiondb.RetentionTurn) (deleted int, more bool) {
	plan, err := r.Apply(ctx, turn.Repo, retentiondb.RetentionOrder{Planned: turn.Rules})
	if err == nil {
		return len(plan.Going), plan.More
	}
	if !errors.Is(err, fault.NotFound) && ctx.Err() == nil { // NotFound: the repo or its rules were deleted
		r.log.WarnContext(ctx, "retention was not applied", "repo", turn.Repo, "err", err)
	}
	return 0, false
}
