package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

const deploymentColumns = `t.uid, t.detail, t.create_ms, t.update_ms`

func scanDeployment(row func(dest ...any) error) (d resource.Deployment, _ error) {
	var uid resource.UID
	var detail string
	var created, updated int64
	if err := row(&uid, &detail, &created, &updated); err != nil {
		return d, err
	}
	if err := json.Unmarshal([]byte(detail), &d); err != nil {
		return d, fmt.Errorf("deployment of %s: %w", uid, err)
	}
	d.UID, d.CreateTime, d.UpdateTime = uid, fromMS(created), fromMS(updated)
	return d, nil
}

// InsertDeployment notes how the images of a repo are deployed. It returns
// fault.NotFound if there is no such repo, and fault.AlreadyExists if that is
// noted.
func (s *Store) InsertDeployment(ctx context.Context, d resource.Deployment) error {
	return s.write(ctx, func(t *tx) error {
		var one int
		if err := t.row(ctx, `SELECT 1 FROM repos AS t WHERE t.uid = $1`+s.engine.hold, []any{string(d.UID)}, &one); err != nil {
			return missing(err, "repo", d.UID)
		}
		detail, err := encode(d)
		if err != nil {
			return err
		}
		n, err := t.exec(ctx, `
			INSERT INTO deployments (repo, uid, detail, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT (repo) DO NOTHING`,
			segment(d.UID), string(d.UID), detail, ms(d.CreateTime), ms(d.UpdateTime))
		if err != nil {
			return err
		}
		if n == 0 {
			return fault.Exists("deployment", string(d.UID))
		}
		return t.emit(ctx, resource.DeploymentCreated, d.UID, d.UID.Parent(), nil, d)
	})
}

// Deployment returns how the images of a repo are deployed, or fault.NotFound if
// that is not noted.
func (s *Store) Deployment(ctx context.Context, repo resource.UID) (resource.Deployment, error) {
	d, err := scanDeployment(func(dest ...any) error {
		return s.row(ctx, `SELECT `+deploymentColumns+` FROM deployments AS t WHERE t.uid = $1`, []any{string(repo)}, dest...)
	})
	return d, missing(err, "deployment", repo)
}

// UpdateDeployment applies change to a deployment and returns the result, under
// the rules of UpdateGroup.
func (s *Store) UpdateDeployment(ctx context.Context, repo resource.UID, change func(*resource.Deployment) error) (d resource.Deployment, _ error) {
	err := s.write(ctx, func(t *tx) error {
		before, err := scanDeployment(func(dest ...any) error {
			return t.row(ctx, `SELECT `+deploymentColumns+` FROM deployments AS t WHERE t.uid = $1`+s.engine.lock, []any{string(repo)}, dest...)
		})
		if err != nil {
			return missing(err, "deployment", repo)
		}
		if d, err = clone(before); err != nil {
			return err
		}
		if err := change(&d); err != nil {
			return err
		}
		d.UpdateTime = s.now()
		detail, err := encode(d)
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, `UPDATE deployments SET detail = $2, update_ms = $3 WHERE uid = $1`, string(repo), detail, ms(d.UpdateTime)); err != nil {
			return err
		}
		return t.emit(ctx, resource.DeploymentUpdated, repo, repo.Parent(), before, d)
	})
	return d, err
}
