package token

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

const (
	// keyPublishDelay is how long a key is published before it signs, so that
	// caches of our keys have it by then.
	keyPublishDelay = 2*maxKeysAge + leeway

	// upgradeDelay is how long the first RSA key of an older installation is
	// published before it signs. An upgrade of all replicas takes less.
	upgradeDelay = time.Hour

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

// Keys returns the signing keys, newest first, each followed by its pair. Of both
// algorithms one signs.
func (i *Issuer) Keys(ctx context.Context) ([]KeyState, error) {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	if err := i.setKeys(stored); err != nil {
		return nil, err
	}
	k, now := i.keys.Load(), i.now()
	ours, others := k.signerFor(i.algorithm, now).id, k.signerFor(RS256, now).id
	var all []KeyState
	add := func(k iamdb.SigningKey) {
		all = append(all, KeyState{k.ID, k.Algorithm, k.CreateTime, k.ID == ours || k.ID == others})
	}
	for _, k := range stored {
		add(k)
		if k.Pair != nil {
			add(*k.Pair)
		}
	}
	return all, nil
}

// SigningSince returns when the key was made that signs now.
func (i *Issuer) SigningSince() time.Time { return i.keys.Load().signer(i.now()).createTime }

// Rotate creates a new signing key and returns its id. The key signs once it
// has been published for a while; tokens signed with older keys stay valid
// until they expire. If several replicas rotate at the same time, one key is
// created. Its pair is created with it.
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
	return i.pair(ctx)
}

// pair creates an RSA key for the newest signing key, unless it has one, and
// returns the id of the signing key. The version before this one makes signing keys
// without a pair.
func (i *Issuer) pair(ctx context.Context) (string, error) {
	i.pairing.Lock()
	defer i.pairing.Unlock()
	return i.pairLocked(ctx)
}

// ensurePaired returns the keys with an RSA key, which it creates if there is none,
// or without one if that fails. It tries once in a while only, because anybody can
// ask for the keys, and making one is expensive.
func (i *Issuer) ensurePaired(ctx context.Context) *keys {
	if k := i.keys.Load(); len(k.paired) > 0 {
		return k
	}
	i.pairing.Lock()
	defer i.pairing.Unlock()
	if now := i.now(); len(i.keys.Load().paired) == 0 && now.Sub(i.pairTried) >= rotateCheck {
		i.pairTried = now
		_, _ = i.pairLocked(context.WithoutCancel(ctx)) // Run tries again, and reports it
	}
	return i.keys.Load()
}

func (i *Issuer) pairLocked(ctx context.Context) (string, error) {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return "", err
	}
	if len(stored) == 0 {
		return "", errors.New("there is no signing key")
	}
	if stored[0].Pair != nil {
		return stored[0].ID, i.setKeys(stored)
	}
	next, err := newKey(RS256, i.master, i.now())
	if err != nil {
		return "", err
	}
	if err := i.store.PairSigningKey(ctx, stored[0].ID, next); err != nil {
		return "", err
	}
	return stored[0].ID, i.load(ctx)
}

// addKey creates a key after newest, and returns "" if another replica was
// first.
func (i *Issuer) addKey(ctx context.Context, newest string) (id string, _ error) {
	next, err := newKey(ES256, i.master, i.now())
	if err != nil {
		return "", err
	}
	added, err := i.store.AddSigningKey(ctx, next, newest)
	if err != nil || !added {
		return "", err
	}
	return next.ID, nil
}

// Drop removes a signing key and its pair at once, which voids every token they
// have signed. id is that of either. If it is the only one, another is created
// first.
func (i *Issuer) Drop(ctx context.Context, id string) error {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	for _, k := range stored {
		if k.Pair != nil && k.Pair.ID == id {
			id = k.ID
		}
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
// newest when it is old, pairs it, and removes those that no valid token is signed
// with.
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
	if err := i.load(ctx); err != nil {
		return err
	}
	_, err = i.pair(ctx)
	return err
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
