package tick

// Float returns an optional number, such as an amount of the advice, in the type of a sample's amounts; nil stays nil.
func Float[T ~int64 | ~float64](v *T) *float64 {
	if v == nil {
		return nil
	}
	return new(float64(*v))
}
