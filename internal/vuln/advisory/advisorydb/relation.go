package advisorydb

// Relations that other packages may read in their queries, followed by AS and a name. Each is a subquery of the columns
// that others may rely on.
const (
	AdvisoryRows = `(SELECT seg, uid FROM advisories)`
	ChangeRows   = `(SELECT root FROM advisory_changes)`
)
