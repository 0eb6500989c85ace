package upload

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store/access"
)

// The lease on an upload keeps other processes from writing to it. It is renewed while the process lives, however
// long the request takes. It can therefore be short: if a server dies, its client only has to wait until the lease
// ends.
const (
	leaseTime  = 10 * time.Second
	leaseRenew = 2 * time.Second
)

// Uploads receives uploads. It is safe for concurrent use.
type Uploads struct {
	Storage
	store *registrydb.Store
	log   *slog.Logger
	now   func() time.Time
	busy  sync.Map // IDs of the uploads to which a request in this process is writing
}

// New returns an Uploads that stores bytes in s and rows in db.
func New(db *registrydb.Store, s Storage, log *slog.Logger, now func() time.Time) *Uploads {
	return &Uploads{Storage: s, store: db, log: log, now: now}
}

// A Claimed is an upload to which no other request can write.
type Claimed struct {
	registry.Upload
	holder     string             // holder of the lease; "" if this process alone uses the database
	stopRenew  context.CancelFunc // stops the renewal of the lease; nil if there is no lease
	monolithic bool               // whether the upload ends with its request and has no row
	done       bool               // whether the upload has ended or its lease was released
}

// Monolithic returns an upload that ends with the request that starts it. It has no row in the database.
func Monolithic(u registry.Upload) *Claimed { return &Claimed{Upload: u, monolithic: true} }

// Claim returns an upload to which no other request can write until Release. If the lease of the previous holder has
// expired without being released, that holder may be dead, or it may still be writing to the same bytes. Therefore
// Claim then deletes the upload, and the client has to start again.
func (u *Uploads) Claim(ctx context.Context, group resource.UID, repo, id string) (*Claimed, error) {
	busy := oci.NewProblem(http.StatusConflict, oci.UploadInvalid, "another request is writing to this upload")
	if !u.Lock(id) {
		return nil, busy
	}
	c := &Claimed{}
	interrupted, err := false, error(nil)
	if u.store.Replicated() {
		c.holder = NewID()
		c.Upload, interrupted, err = u.store.HoldUpload(ctx, group, repo, id, c.holder, u.now().Add(leaseTime))
	} else {
		c.Upload, err = u.store.Upload(ctx, group, repo, id)
	}
	if interrupted {
		err = errors.Join(interruptedProblem(c.ID), u.abandon(ctx, c.ID))
	}
	if err != nil {
		u.Unlock(id)
		if errors.Is(err, fault.Aborted) {
			return nil, busy
		}
		return nil, UnknownUpload(err, id)
	}
	if c.holder != "" {
		var held context.Context
		held, c.stopRenew = context.WithCancel(access.Without(context.WithoutCancel(ctx)))
		go u.renew(held, c.ID, c.holder)
	}
	return c, nil
}

// UnknownUpload returns the Problem for an upload that does not exist, if err is fault.NotFound. Otherwise it returns
// err.
func UnknownUpload(err error, id string) error {
	if errors.Is(err, fault.NotFound) {
		return oci.NewProblem(http.StatusNotFound, oci.UploadUnknown, "there is no upload %.100q here", id)
	}
	return err
}

func interruptedProblem(id string) error {
	return oci.NewProblem(http.StatusNotFound, oci.UploadUnknown, "upload %s was interrupted; start again", id)
}

// Release ends a claim.
func (u *Uploads) Release(ctx context.Context, c *Claimed) {
	if c.stopRenew != nil {
		c.stopRenew()
	}
	if c.holder != "" && !c.done {
		if err := u.store.ReleaseUpload(access.Without(context.WithoutCancel(ctx)), c.ID, c.holder); err != nil {
			u.log.WarnContext(ctx, "release upload", "err", err) // the lease expires by itself
		}
	}
	u.Unlock(c.ID)
}

// renew renews the lease on an upload until ctx is done or the lease is lost.
func (u *Uploads) renew(ctx context.Context, id, holder string) {
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := u.store.RenewUpload(ctx, id, holder, u.now().Add(leaseTime))
		switch {
		case ctx.Err() != nil || errors.Is(err, fault.NotFound):
			return
		case err != nil:
			u.log.WarnContext(ctx, "renew the lease on an upload", "err", err)
		}
	}
}

// Lock reports whether the caller may write to an upload until Unlock. It returns false if another goroutine of this
// process holds the lock.
func (u *Uploads) Lock(id string) bool {
	_, busy := u.busy.LoadOrStore(id, true)
	return !busy
}

// Unlock releases the lock on an upload.
func (u *Uploads) Unlock(id string) { u.busy.Delete(id) }

// Cancel deletes a claimed upload and its bytes.
func (u *Uploads) Cancel(ctx context.Context, c *Claimed) error {
	if err := u.abandon(ctx, c.ID); err != nil {
		return UnknownUpload(err, c.ID)
	}
	c.done = true
	return nil
}

// drop deletes a claimed upload that has failed, also if it failed because the caller has lost access.
func (u *Uploads) drop(ctx context.Context, c *Claimed) error {
	ctx = access.Without(ctx)
	if c.monolithic {
		return u.DiscardUpload(ctx, c.ID)
	}
	if err := u.abandon(ctx, c.ID); !errors.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// abandon deletes an upload and its bytes. It returns fault.NotFound if there is no such upload.
func (u *Uploads) abandon(ctx context.Context, id string) error {
	err := u.store.DeleteUpload(ctx, id)
	return errors.Join(err, u.DiscardUpload(ctx, id))
}
