"""Maps from parameters to logits that are twice another map's, by way of the methods alone."""


class Doubled:
    """Put before a map: its logits and all that follows from them, doubled."""

    def logits(self, theta):
        return 2.0 * super().logits(theta)

    def adjoint_by_prompt(self, covectors):
        return 2.0 * super().adjoint_by_prompt(covectors)

    def adjoint(self, covectors):
        return 2.0 * super().adjoint(covectors)

    def gram(self):
        return 4.0 * super().gram()

    def congruence(self, forms):
        return 4.0 * super().congruence(forms)

    def squared_norms(self, covectors):
        return 4.0 * super().squared_norms(covectors)
