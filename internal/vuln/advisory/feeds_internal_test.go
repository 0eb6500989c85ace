package advisory

import "context"

// ReadDue reads one feed that is due and records the result. read is false if no feed is due.
func (s *Service) ReadDue(ctx context.Context) (read bool, _ error) {
	f, ok, err := s.store.ClaimDueFeed(ctx, s.now().Add(feedLease), "", nil)
	if err != nil || !ok {
		return false, err
	}
	return true, s.readAndRecord(ctx, f)
}
