package indexer

import "context"

// Step inspects the next image if there is one.
func (x *Indexer) Step(ctx context.Context) error {
	_, _, err := x.next(ctx, nil)
	return err
}
