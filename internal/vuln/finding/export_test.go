package finding

// SetPairs sets how many pairs of a package and an advisory one turn compares.
func (m *Matcher) SetPairs(n int) { m.pairs = n }

// Holder returns who holds the lease of the Matcher.
func (m *Matcher) Holder() string { return m.holder }
