package indexer

import "context"

// Step inspects the next image if there is one.
func (x *Indexer) Step(ctx context.Context) error {
	q, ok, err := x.images.ReserveImage(ctx, nil, reserveLife)
	if err != nil || !ok {
		return err
	}
	return x.index(ctx, q)
}
