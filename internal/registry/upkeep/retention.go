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

// Apply applies the rules of a repo when it is the turn of its organization. It waits for a turn because each
// application locks a repo, and on SQLite all writers.
func (r *Retention) Apply(
	ctx context.Context, repo resource.UID, order retentiondb.RetentionOrder,
) (retentiondb.RetentionPlan, error) {
	end, err := r.turns.Acquire(ctx, repo.Root())
	if err != nil {
		return retentiondb.RetentionPlan{}, err
	}
	defer end()
	return r.store.ApplyRetention(ctx, repo, order)
}

// retentionRound is the number of organizations that have a turn in one round.
const retentionRound = 1000

// Run applies the rules that are due and returns the number of deleted images. Each organization processes one repo at
// a time, and an organization with many images to delete waits for all others between its turns. Several replicas may
// call Run at the same time. A failure is logged and does not stop the other repos.
func (r *Retention) Run(ctx context.Context) (images int, _ error) {
	start := r.now()
	unfinished := map[resource.UID]retentiondb.RetentionTurn{} // by organization
	for {
		due, err := r.store.RetentionDue(ctx, start, retentionRound)
		if err != nil {
			return images, err
		}
		for _, place := range due {
			if _, ok := unfinished[place.Root()]; ok {
				continue
			}
			turn, err := r.store.TakeRetention(ctx, place, start)
			if err != nil {
				return images, err
			}
			if turn.Repo != "" {
				unfinished[place.Root()] = turn
			}
		}
		if len(due)+len(unfinished) == 0 {
			return images, nil
		}
		for root, turn := range unfinished {
			plan, err := r.Apply(ctx, turn.Repo, retentiondb.RetentionOrder{Planned: turn.Rules})
			if ctx.Err() != nil {
				return images, ctx.Err()
			}
			if err != nil && !errors.Is(err, fault.NotFound) { // the repo or the rules may have been deleted
				r.log.WarnContext(ctx, "retention was not applied", "repo", turn.Repo, "err", err)
			}
			if err != nil || !plan.More {
				delete(unfinished, root)
			}
			if err == nil {
				images += len(plan.Going)
			}
		}
	}
}
