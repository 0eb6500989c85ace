package token

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/store/iamdb"
)

const (
	// keyPublishDelay is how long a key is published before it signs, so that
	// caches of our keys have it by then.
	keyPublishDelay = 2*maxKeysAge + leeway

	// keyRetention is how long a key is published after it was replaced: longer
	// than any token it has signed.
	keyRetention = MaxLife + time.Hour

	rotateCheck = time.Minute
)

// A KeyState describes a signing key to an operator.
type KeyState struct {
	ID         string    `json:"id"`
	Algorithm  string    `json:"algorithm"`
	CreateTime time.Time `json:"createTime"`
	Signs      bool      `json:"signs"`
}

// Keys returns the signing keys, newest first.
func (i *Issuer) Keys(ctx context.Context) ([]KeyState, error) {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	if err := i.setKeys(stored); err != nil {
		return nil, err
	}
	current := i.keys.Load().signer(i.now()).id
	var all []KeyState
	for _, k := range stored {
		all = append(all, KeyState{k.ID, k.Algorithm, k.CreateTime, k.ID == current})
	}
	return all, nil
}

// SigningSince returns when the key was made that signs now.
func (i *Issuer) SigningSince() time.Time { return i.keys.Load().signer(i.now()).createTime }

// Rotate creates a new signing key and returns its id. The key signs once it
// has been published for a while; tokens signed with older keys stay valid
// until they expire. If several replicas rotate at the same time, one key is
// created.
func (i *Issuer) Rotate(ctx context.Context) (string, error) {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return "", err
	}
	newest := ""
	if len(stored) > 0 {
		newest = stored[0].ID
	}
	if _, err := i.addKey(ctx, newest); err != nil {
		return "", err
	}
	if stored, err = i.store.SigningKeys(ctx); err != nil {
		return "", err
	}
	return stored[0].ID, i.setKeys(stored)
}

// addKey creates a key after newest, and returns "" if another replica was
// first.
func (i *Issuer) addKey(ctx context.Context, newest string) (id string, _ error) {
	next, err := newKey(i.master, i.now())
	if err != nil {
		return "", err
	}
	added, err := i.store.AddSigningKey(ctx, next, newest)
	if err != nil || !added {
		return "", err
	}
	return next.ID, nil
}

// Drop removes a signing key at once, which voids every token it has signed.
// If it is the only one, another is created first.
func (i *Issuer) Drop(ctx context.Context, id string) error {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	if len(stored) == 1 && stored[0].ID == id {
		if _, err := i.Rotate(ctx); err != nil {
			return err
		}
	}
	if err := i.store.DropSigningKey(ctx, id); err != nil {
		return err
	}
	return i.load(ctx)
}

// Run maintains the keys until ctx ends: it reads them regularly, replaces the
// newest when it is old, and removes those that no valid token is signed with.
func (i *Issuer) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(rotateCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := i.maintain(ctx, log); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "the signing keys cannot be looked after", "err", err)
		}
	}
}

func (i *Issuer) maintain(ctx context.Context, log *slog.Logger) error {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	now := i.now()
	if i.rotation > 0 && len(stored) > 0 && now.Sub(stored[0].CreateTime) > i.rotation {
		id, err := i.addKey(ctx, stored[0].ID) // the id of the old key: there may be a newer one by now
		if err != nil {
			return err
		}
		if id != "" {
			log.InfoContext(ctx, "made a new signing key", "key", id)
		}
	}
	for _, k := range expiredKeys(stored, now) {
		err := i.store.DropSigningKey(ctx, k.ID)
		if errors.Is(err, fault.NotFound) {
			continue // another replica was first
		}
		if err != nil {
			return err
		}
		log.InfoContext(ctx, "dropped a signing key that nothing is signed with any more", "key", k.ID)
	}
	return i.load(ctx)
}

// expiredKeys returns the keys, of those sorted newest first, that were
// replaced so long ago that none of their tokens can be valid.
func expiredKeys(stored []iamdb.SigningKey, now time.Time) []iamdb.SigningKey {
	for n, k := range stored {
		if now.Sub(k.CreateTime) > keyPublishDelay+keyRetention {
			return stored[n+1:]
		}
	}
	return nil
}
