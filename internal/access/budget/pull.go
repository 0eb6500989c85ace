package budget

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const day = 24 * time.Hour

// The kinds of pulls that are counted apart, so that strangers cannot use up what a group needs for itself.
const pulledByMembers, pulledByOthers = "pulls", "pulls.public"

// pullCounts are the pulls of today that this replica knows of. It counts them in memory, and adds them to those of
// other replicas every second. So a budget may be exceeded by what the others serve within a second.
type pullCounts struct {
	mu   sync.Mutex
	days map[iamdb.PullDay]*pullCount
}

// A pullCount counts pulls from the repos of a group that has a budget.
type pullCount struct {
	stored int64 // in the database, when it was last asked
	added  int64 // by this replica since
}

func (s *Service) dayOf(group resource.UID, public bool) iamdb.PullDay {
	d := iamdb.PullDay{Day: s.cfg.Now().Unix() / int64(day.Seconds()), Group: group, Kind: pulledByMembers}
	if public {
		d.Kind = pulledByOthers
	}
	return d
}

// Pull counts a pull from a repo. It returns fault.ResourceExhausted, and counts nothing, if there were as many
// today as a budget allows. public is true if the caller may pull only because everybody may.
func (s *Service) Pull(ctx context.Context, repo resource.UID, public bool) error {
	all, err := s.store.Budgets(ctx)
	if err != nil {
		return err
	}
	budgets := all.Above(repo, resource.PullsPerDay)
	if len(budgets) == 0 {
		return nil
	}
	counts := make([]*pullCount, len(budgets))
	for i, b := range budgets {
		if counts[i], err = s.pullCount(ctx, s.dayOf(b.UID, public)); err != nil {
			return err
		}
	}
	if over, used := s.countPull(budgets, counts); over != nil {
		now := s.cfg.Now()
		return fault.TooOften(s.store.Quota(ctx, *over, resource.PullsPerDay, used, ""), now.Truncate(day).Add(day).Sub(now))
	}
	return nil
}

// countPull adds a pull to all counts, or returns the budget that has none left.
func (s *Service) countPull(budgets []resource.Budget, counts []*pullCount) (over *resource.Budget, used int64) {
	s.pulls.mu.Lock()
	defer s.pulls.mu.Unlock()
	for i, c := range counts {
		if used := c.stored + c.added; used >= budgets[i].Limits[resource.PullsPerDay] {
			return &budgets[i], used
		}
	}
	for _, c := range counts {
		c.added++
	}
	return nil, 0
}

// pullCount returns what counts the pulls of a day. The first time it asks the database.
func (s *Service) pullCount(ctx context.Context, d iamdb.PullDay) (*pullCount, error) {
	s.pulls.mu.Lock()
	c := s.pulls.days[d]
	s.pulls.mu.Unlock()
	if c != nil {
		return c, nil
	}
	n, err := s.store.PullsCounted(ctx, d)
	if err != nil {
		return nil, err
	}
	s.pulls.mu.Lock()
	defer s.pulls.mu.Unlock()
	if s.pulls.days[d] == nil {
		s.pulls.days[d] = &pullCount{stored: n}
	}
	return s.pulls.days[d], nil
}

// pullsToday returns how many pulls were counted today.
func (s *Service) pullsToday(ctx context.Context, group resource.UID, public bool) (int64, error) {
	d := s.dayOf(group, public)
	n, err := s.store.PullsCounted(ctx, d)
	s.pulls.mu.Lock()
	defer s.pulls.mu.Unlock()
	if c := s.pulls.days[d]; c != nil {
		n += c.added
	}
	return n, err
}

// Flush writes the pulls that are not written yet. It is called after the last request, too.
func (s *Service) Flush(ctx context.Context) error {
	added := map[iamdb.PullDay]int64{}
	s.pulls.mu.Lock()
	today := s.dayOf("", false).Day
	for d, c := range s.pulls.days {
		switch {
		case c.added > 0:
			added[d] = c.added
		case d.Day < today:
			delete(s.pulls.days, d)
		}
	}
	s.pulls.mu.Unlock()
	if len(added) == 0 {
		return nil
	}
	total, err := s.store.AddPulls(ctx, added)
	if err != nil {
		return err
	}
	s.pulls.mu.Lock()
	defer s.pulls.mu.Unlock()
	for d, n := range added {
		s.pulls.days[d].stored = total[d]
		s.pulls.days[d].added -= n
	}
	return nil
}
