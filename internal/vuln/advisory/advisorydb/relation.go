package advisorydb

// Relations that other packages may read in their queries. A query writes AS and a name after the relation. Each is a
// subquery that selects the columns on which other packages may rely.
const (
	AdvisoryRows = `(SELECT seg, uid FROM advisories)`
	ChangeRows   = `(SELECT root FROM advisory_changes)`
)
