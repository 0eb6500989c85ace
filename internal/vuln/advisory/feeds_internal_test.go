package advisory

import "context"

// ReadDue reads one feed that is due, if there is one, and records the result.
func (s *Service) ReadDue(ctx context.Context) (read bool, _ error) {
	f, ok, err := s.store.ClaimDueFeed(ctx, s.now().Add(feedLease), "", nil)
	if err != nil || !ok {
		return false, err
	}
	return true, s.readAndRecord(ctx, f)
}
