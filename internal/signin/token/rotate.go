package token

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
)

const (
	// keyPublishDelay is the time between publishing a key and signing with it, so
	// that caches of our keys contain it by then.
	keyPublishDelay = 2*maxKeysAge + leeway

	// keyRetention is the time for which a key stays published after it was replaced.
	// It is longer than the life of any token.
	keyRetention = MaxLife + time.Hour

	rotateCheck = time.Minute // interval between two runs of maintain
)

// A KeyState describes a signing key to an operator.
type KeyState struct {
	ID         string    `json:"id"`
	Algorithm  string    `json:"algorithm"`
	CreateTime time.Time `json:"createTime"`
	Signs      bool      `json:"signs"` // whether the key signs new tokens
}

// Keys returns the signing keys, newest first, each followed by its paired RSA key.
// For each algorithm, one key signs.
func (i *Issuer) Keys(ctx context.Context) ([]KeyState, error) {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	if err := i.setKeys(stored); err != nil {
		return nil, err
	}
	k, asOf := i.keys.Load(), i.now()
	ours, foreign := k.signerFor(i.algorithm, asOf).id, k.signerFor(RS256, asOf).id
	var states []KeyState
	add := func(k tokendb.SigningKey) {
		states = append(states, KeyState{k.ID, k.Algorithm, k.CreateTime, k.ID == ours || k.ID == foreign})
	}
	for _, k := range stored {
		add(k)
		if k.Pair != nil {
			add(*k.Pair)
		}
	}
	return states, nil
}

// SigningSince returns the creation time of the key that currently signs.
func (i *Issuer) SigningSince() time.Time { return i.keys.Load().signer(i.now()).createTime }

// Rotate creates a new signing key with its paired RSA key, and returns its id. The
// key signs after keyPublishDelay. Tokens signed with older keys stay valid until
// they expire. If several replicas rotate at the same time, one key is created.
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

// pair creates an RSA key for the newest signing key if it has none, and returns the
// id of the signing key. The newest key has no RSA key if creating it has failed.
func (i *Issuer) pair(ctx context.Context) (string, error) {
	i.pairing.Lock()
	defer i.pairing.Unlock()
	return i.pairLocked(ctx)
}

// ensurePaired returns the keys, and creates an RSA key if there is none. If that
// fails, it returns the keys without an RSA key. It tries at most once per
// rotateCheck, because anybody can request the keys and creating one is expensive.
func (i *Issuer) ensurePaired(ctx context.Context) *keys {
	if k := i.keys.Load(); len(k.paired) > 0 {
		return k
	}
	i.pairing.Lock()
	defer i.pairing.Unlock()
	if asOf := i.now(); len(i.keys.Load().paired) == 0 && asOf.Sub(i.pairTried) >= rotateCheck {
		i.pairTried = asOf
		_, _ = i.pairLocked(context.WithoutCancel(ctx)) // Run tries again and logs the error
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

// addKey creates the key that follows newest. It returns "" if another replica has
// created one.
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

// Drop removes a signing key and its paired RSA key immediately. All tokens that they
// have signed become void. id is the id of either key. If it is the only signing
// key, Drop creates another one first.
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

// Run maintains the keys until ctx ends. It reads the keys regularly, replaces the newest key when it is old, creates
// its RSA key, and removes old keys when none of their tokens can be valid any longer.
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
			log.WarnContext(ctx, "maintain the signing keys", "err", err)
		}
	}
}

func (i *Issuer) maintain(ctx context.Context, log *slog.Logger) error {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	asOf := i.now()
	if i.rotation > 0 && len(stored) > 0 && asOf.Sub(stored[0].CreateTime) > i.rotation {
		id, err := i.addKey(ctx, stored[0].ID) // another replica may have created a newer key
		if err != nil {
			return err
		}
		if id != "" {
			log.InfoContext(ctx, "created a signing key", "key", id)
		}
	}
	for _, k := range expiredKeys(stored, asOf) {
		err := i.store.DropSigningKey(ctx, k.ID)
		if errors.Is(err, fault.NotFound) {
			continue // another replica has created the key first
		}
		if err != nil {
			return err
		}
		log.InfoContext(ctx, "removed an expired signing key", "key", k.ID)
	}
	if err := i.load(ctx); err != nil {
		return err
	}
	_, err = i.pair(ctx)
	return err
}

// expiredKeys returns the keys that were replaced so long ago that none of their
// tokens can be valid. stored is sorted newest first.
func expiredKeys(stored []tokendb.SigningKey, now time.Time) []tokendb.SigningKey {
	for n, k := range stored {
		if now.Sub(k.CreateTime) > keyPublishDelay+keyRetention {
			return stored[n+1:]
		}
	}
	return nil
}
