package budget

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/budgetdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const day = 24 * time.Hour

// The two kinds of pulls have separate counters, so that strangers cannot use up the budget of the members.
const pulledByMembers, pulledByOthers = "pulls", "pulls.public"

// pullCounts has the pulls of today that this replica knows. The replica counts its own pulls in memory, and adds them
// to the counters in the database every second. A budget can therefore be exceeded by the pulls that other replicas
// serve within a second.
type pullCounts struct {
	mu   sync.Mutex
	days map[budgetdb.PullDay]*pullCount
}

// A pullCount counts pulls from the repos of a group that has a budget.
type pullCount struct {
	stored int64 // pulls in the database when this process last read them
	added  int64 // pulls through this replica since then
}

func (s *Service) dayOf(group resource.UID, public bool) budgetdb.PullDay {
	d := budgetdb.PullDay{Day: s.cfg.Now().Unix() / int64(day.Seconds()), Group: group, Kind: pulledByMembers}
	if public {
		d.Kind = pulledByOthers
	}
	return d
}

// Pull counts a pull from a repo. If a budget allows no more pulls today, Pull returns fault.ResourceExhausted and does
// not count the pull. public is true if the caller may pull only because everybody may.
func (s *Service) Pull(ctx context.Context, repo resource.UID, public bool) error {
	stored, err := s.store.Budgets(ctx)
	if err != nil {
		return err
	}
	budgets := stored.Above(repo, resource.PullsPerDay)
	if len(budgets) == 0 {
		return nil
	}
	counts := make([]*pullCount, len(budgets))
	for i, b := range budgets {
		if counts[i], err = s.pullCount(ctx, s.dayOf(b.UID, public)); err != nil {
			return err
		}
	}
	if exhausted, used := s.countPull(budgets, counts); exhausted != nil {
		currentTime := s.cfg.Now()
		tomorrow := currentTime.Truncate(day).Add(day)
		return fault.TooOften(s.store.Quota(ctx, *exhausted, resource.PullsPerDay, used, ""), tomorrow.Sub(currentTime))
	}
	return nil
}

// countPull adds a pull to all counts and returns nil. If a budget allows no more pulls, countPull returns that budget
// and its usage, and adds nothing.
func (s *Service) countPull(budgets []resource.Budget, counts []*pullCount) (exhausted *resource.Budget, used int64) {
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

// pullCount returns the counter of a day. The first call for a day reads it from the database.
func (s *Service) pullCount(ctx context.Context, d budgetdb.PullDay) (*pullCount, error) {
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

// pullsToday returns the number of pulls today.
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

// Flush writes the counted pulls to the database. The server also calls it after the last request.
func (s *Service) Flush(ctx context.Context) error {
	added := map[budgetdb.PullDay]int64{}
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
