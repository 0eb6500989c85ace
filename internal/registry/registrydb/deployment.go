package registrydb

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const selectDeployment = `SELECT t.uid, t.detail, t.create_ms, t.update_ms FROM deployments AS t WHERE t.uid = $1`

func scanDeployment(row store.Scanner) (d registry.Deployment, _ error) {
	var uid resource.UID
	var detail string
	var created, updated int64
	if err := row.Scan(&uid, &detail, &created, &updated); err != nil {
		return d, err
	}
	if err := json.Unmarshal([]byte(detail), &d); err != nil {
		return d, fmt.Errorf("deployment of %s: %w", uid, err)
	}
	d.UID, d.CreateTime, d.UpdateTime = uid, store.FromMS(created), store.FromMS(updated)
	return d, nil
}

// InsertDeployment adds the deployment of a repo. It returns fault.NotFound if there is no such repo, and
// fault.AlreadyExists if the repo has a deployment.
func (s *Store) InsertDeployment(ctx context.Context, d registry.Deployment) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.Require(ctx, "repos", "repo", d.UID); err != nil {
			return err
		}
		detail, err := store.Encode(d)
		if err != nil {
			return err
		}
		n, err := t.Exec(ctx, `
			INSERT INTO deployments (repo, uid, detail, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT (repo) DO NOTHING`,
			store.Segment(d.UID), string(d.UID), detail, store.MS(d.CreateTime), store.MS(d.UpdateTime))
		if err != nil {
			return err
		}
		if n == 0 {
			return fault.Exists("deployment", string(d.UID))
		}
		return t.Emit(ctx, resource.DeploymentCreated, d.UID, d.UID.Parent(), nil, d)
	})
}

// Deployment returns the deployment of a repo, or fault.NotFound if it has none.
func (s *Store) Deployment(ctx context.Context, repo resource.UID) (registry.Deployment, error) {
	d, err := scanDeployment(s.QueryRow(ctx, selectDeployment, string(repo)))
	return d, store.Missing(err, "deployment", repo)
}

// UpdateDeployment applies change to a deployment and returns the result. If change changes nothing, nothing is
// written. It returns fault.NotFound if the repo has no deployment, and the error of change.
func (s *Store) UpdateDeployment(
	ctx context.Context, repo resource.UID, change func(*registry.Deployment) error,
) (d registry.Deployment, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := scanDeployment(t.QueryRow(ctx, selectDeployment+s.Engine.ForUpdate, string(repo)))
		if err != nil {
			return store.Missing(err, "deployment", repo)
		}
		if d, err = store.Clone(before); err != nil {
			return err
		}
		if err := change(&d); err != nil || reflect.DeepEqual(before, d) {
			return err
		}
		d.UpdateTime = s.Time()
		detail, err := store.Encode(d)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `UPDATE deployments SET detail = $2, update_ms = $3 WHERE uid = $1`, string(repo), detail,
			store.MS(d.UpdateTime)); err != nil {
			return err
		}
		return t.Emit(ctx, resource.DeploymentUpdated, repo, repo.Parent(), before, d)
	})
	return d, err
}

// Deployments returns the deployments of repos. Repos without one are left out.
func (s *Store) Deployments(ctx context.Context, repos []resource.UID) (all []registry.Deployment, _ error) {
	q := store.Query{Engine: s.Engine}
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (d registry.Deployment, err error) {
		var uid resource.UID
		var detail string
		if err = row.Scan(&uid, &detail); err == nil {
			err = json.Unmarshal([]byte(detail), &d)
		}
		d.UID = uid
		return d, err
	}, fmt.Sprintf(`SELECT d.uid, d.detail FROM %s AS s CROSS JOIN deployments AS d WHERE d.uid = s.v`,
		s.Engine.Unnest(&q, repos)), q.Args...)
}
