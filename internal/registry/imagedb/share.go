package imagedb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Tenants share the processor time of inspections. The position of a tenant is the time that its inspections have used.
// The queue chooses the tenant with the lowest position, and its own position is the position of the tenant that it has
// chosen last. A tenant that had no images for a while continues a little before the position of the queue, so that its
// next images come first. Otherwise nobody saves up time, and nobody pays for time that no other tenant needed.

// minCost is the cost of an inspection that is charged when the image is taken from the queue.
const minCost = 20 * time.Millisecond

// headStart is the time by which a tenant that had no images is ahead of the queue.
const headStart = 2 * time.Second

// keepCosts is the time for which the cost of a layer is remembered.
const keepCosts = 30 * 24 * time.Hour

// tenantNumber returns the number of the tenant that pays for the organization of uid.
func (s *Store) tenantNumber(ctx context.Context, uid resource.UID) int64 {
	return store.Segment(resource.UID(s.DB.Tenant(ctx, uid)))
}

// TenantOf returns the tenant that pays for an image.
func (s *Store) TenantOf(ctx context.Context, q QueuedImage) string {
	return string(s.DB.Tenant(ctx, q.Repo))
}

// OthersWait reports whether an image of another tenant is due that comes before further images of the tenant of q.
func (s *Store) OthersWait(ctx context.Context, q QueuedImage) (bool, error) {
	tenant := s.tenantNumber(ctx, q.Repo)
	for rank := range registrydb.Ranks {
		if rank == registrydb.RankAgain && !q.Again {
			break
		}
		roots, err := s.waitingRoots(ctx, rank, "rank", "due_ms")
		if err != nil {
			return false, err
		}
		for _, r := range roots {
			if s.tenantNumber(ctx, r.repo) != tenant {
				return true, nil
			}
		}
	}
	return false, nil
}

// A waitingRoot is an organization with images that are due.
type waitingRoot struct {
	root int64
	repo resource.UID // repo of one of the images
}

// cheapest returns the organization whose tenant has the lowest position. Among tenants with the same position it
// chooses the next organization after the given one. roots are sorted.
func (s *Store) cheapest(ctx context.Context, roots []waitingRoot, after int64) (int64, error) {
	if len(roots) == 1 {
		return roots[0].root, nil
	}
	tenants := make([]int64, len(roots))
	for i, r := range roots {
		tenants[i] = s.tenantNumber(ctx, r.repo)
	}
	q := store.Query{Engine: s.Engine}
	spent, err := store.ReadMap[int64, int64](ctx, s.Rows, `SELECT s.tenant, s.spent_us FROM inspection_shares AS s
		WHERE s.tenant = 0 OR s.tenant IN (SELECT u.v FROM `+s.Engine.Unnest(&q, tenants)+` AS u)`, q.Args...)
	if err != nil {
		return 0, err
	}
	var best int
	position := func(i int) int64 {
		start := spent[0] - headStart.Microseconds()
		if p, ok := spent[tenants[i]]; ok {
			return max(p, start)
		}
		return start
	}
	for i := range roots {
		later := roots[i].root > after && roots[best].root <= after
		if p, b := position(i), position(best); p < b || p == b && later {
			best = i
		}
	}
	return roots[best].root, nil
}

// charge charges the tenant of a repo with a cost, and moves the queue to the position at which the tenant was before.
func (t Tx) charge(ctx context.Context, tenant int64, cost time.Duration) error {
	const add = `INSERT INTO inspection_shares (tenant, spent_us) VALUES ($1,
		coalesce((SELECT q.spent_us FROM inspection_shares AS q WHERE q.tenant = 0), 0) - $3 + $2)
		ON CONFLICT (tenant) DO UPDATE SET spent_us = $2 + CASE
			WHEN inspection_shares.spent_us > excluded.spent_us - $2 THEN inspection_shares.spent_us
			ELSE excluded.spent_us - $2 END`
	if _, err := t.Exec(ctx, add, tenant, cost.Microseconds(), headStart.Microseconds()); err != nil {
		return err
	}
	const move = `INSERT INTO inspection_shares (tenant, spent_us)
		SELECT 0, s.spent_us - $2 FROM inspection_shares AS s WHERE s.tenant = $1
		ON CONFLICT (tenant) DO UPDATE SET spent_us = CASE WHEN inspection_shares.spent_us > excluded.spent_us
			THEN inspection_shares.spent_us ELSE excluded.spent_us END`
	_, err := t.Exec(ctx, move, tenant, cost.Microseconds())
	return err
}

// ChargeTurn charges the tenant of an image with minCost when an inspection begins.
func (s *Store) ChargeTurn(ctx context.Context, q QueuedImage) error {
	tenant := s.tenantNumber(ctx, q.Repo)
	return s.write(ctx, func(t Tx) error { return t.charge(ctx, tenant, minCost) })
}

// Charge adds to the cost of the tenant of an image. If more was charged before than was used, the cost is negative.
// If SweepCosts has removed the tenant's position since the turn was charged, the tenant gets the position of a tenant
// without images.
func (s *Store) Charge(ctx context.Context, q QueuedImage, cost time.Duration) error {
	_, err := s.Exec(ctx, `INSERT INTO inspection_shares (tenant, spent_us) VALUES ($1,
		coalesce((SELECT q.spent_us FROM inspection_shares AS q WHERE q.tenant = 0), 0) - $3 + $2)
		ON CONFLICT (tenant) DO UPDATE SET spent_us = inspection_shares.spent_us + $2`,
		s.tenantNumber(ctx, q.Repo), cost.Microseconds(), headStart.Microseconds())
	return err
}

// A LayerCost is the cost of reading a layer.
type LayerCost struct {
	Digest    string
	Bytes     int64         // bytes after decompression
	Processor time.Duration // processor time
}

// LayerCosts returns the remembered costs of layers in images of the tenant of q, by digest. version is the version of
// the code that reads them now.
func (s *Store) LayerCosts(
	ctx context.Context, q QueuedImage, version int, digests []string,
) (map[string]LayerCost, error) {
	costs := map[string]LayerCost{}
	query := store.Query{Engine: s.Engine}
	tenant, current := query.Arg(s.tenantNumber(ctx, q.Repo)), query.Arg(version)
	text := `SELECT c.digest, c.bytes, c.processor_us FROM layer_costs AS c WHERE c.tenant = ` + tenant + `
		AND c.version = ` + current + ` AND c.digest IN (SELECT u.v FROM ` + s.Engine.Unnest(&query, digests) + ` AS u)`
	return costs, s.Rows(ctx, text, query.Args, func(row store.Scanner) (bool, error) {
		var c LayerCost
		var micros int64
		err := row.Scan(&c.Digest, &c.Bytes, &micros)
		c.Processor = time.Duration(micros) * time.Microsecond
		costs[c.Digest] = c
		return false, err
	})
}

// RememberCosts stores the costs of layers for the tenant of q.
func (s *Store) RememberCosts(ctx context.Context, q QueuedImage, version int, costs []LayerCost) error {
	if len(costs) == 0 {
		return nil
	}
	tenant := s.tenantNumber(ctx, q.Repo)
	return s.write(ctx, func(t Tx) error {
		var rows [][]any
		for _, c := range costs {
			rows = append(rows, []any{tenant, c.Digest, version, c.Bytes, c.Processor.Microseconds(), store.MS(s.Time())})
		}
		return t.InsertRows(ctx, `INSERT INTO layer_costs (tenant, digest, version, bytes, processor_us, update_ms)`, rows,
			` ON CONFLICT (tenant, digest) DO UPDATE SET version = excluded.version, bytes = excluded.bytes,
			processor_us = excluded.processor_us, update_ms = excluded.update_ms`)
	})
}

// SweepCosts removes old costs of layers, old rates, and positions that have no effect because the queue is at a higher
// one.
func (s *Store) SweepCosts(ctx context.Context) error {
	if _, err := s.Exec(ctx, `DELETE FROM layer_costs WHERE update_ms < $1`,
		store.MS(s.Time().Add(-keepCosts))); err != nil {
		return err
	}
	if err := s.sweepRates(ctx); err != nil {
		return err
	}
	_, err := s.Exec(ctx, `DELETE FROM inspection_shares WHERE tenant <> 0
		AND spent_us <= (SELECT q.spent_us FROM inspection_shares AS q WHERE q.tenant = 0) - $1`, headStart.Microseconds())
	return err
}
