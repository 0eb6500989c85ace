package token

import (
	"context"

	"github.com/holdfast-dev/holdfast/seal"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/iamdb"
)

// CheckKeys returns an error unless master opens all signing keys of a database. It
// changes nothing.
func CheckKeys(ctx context.Context, db *store.DB, master seal.Key) error {
	stored, err := iamdb.New(db).SigningKeys(ctx)
	if err != nil || len(stored) == 0 {
		return err
	}
	_, err = openKeys(stored, master)
	return err
}
